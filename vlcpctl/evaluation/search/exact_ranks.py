"""The exact rank of every query's best right answer, and its best wrong answer.

`ranks.rank` stops at the largest cut-off, and its search returns no more candidates than that
takes. Here every score is computed, once for all galleries of the first 1, 2, ... N parts.
Shapes: Q queries, A right answers of all queries.
"""

from __future__ import annotations

import numpy as np

from vlcpctl.evaluation.search.candidates import BAND, Scores
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.growing_ranks import GrowingQueries, Versions
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.ranks import ExactRanks, Queries, Ranks, answers_of
from vlcpctl.evaluation.search.scan import Scanned, scan


def exact_ranks(queries: Queries, known: Ranks, top: int, device: str) -> ExactRanks:
    """The exact ranks of queries whose ranks up to `top` are known.

    As everywhere, a right answer loses its ties: a wrong answer within the tie band ranks above it.
    Of equal wrong answers, the first in the gallery is the best. `device` is auto, cpu or cuda.
    """
    scanned = scan(queries, np.array([len(queries.gallery_GD)]), device)
    rows = np.arange(len(queries.query_QD))
    return _ranks(scanned, 0, rows, queries.right, known.worst, top)


class GrowingExactRanks:
    """The exact ranks in all galleries of the first 1, 2, ... N parts."""

    def __init__(self, queries: GrowingQueries, device: str) -> None:
        self.versions: Versions = queries.versions
        sides, right = self.versions.sides, self.versions.right
        every = Queries(sides.query_QD, sides.gallery_GD, right)
        self._scanned = scan(every, queries.gallery_ends, device)

    def first(self, parts: int, known: Ranks, top: int) -> ExactRanks:
        """The ranks of the gallery of the first parts, as `exact_ranks` gives them."""
        rows = self.versions.at(parts)
        return _ranks(self._scanned, parts - 1, rows, self.versions.right, known.worst, top)


def _ranks(
    scanned: Scanned, part: int, rows: Ids, right: RightAnswers, known: Ids, top: int
) -> ExactRanks:
    """The ranks of the queries in these rows in the parts up to `part`, from 0."""
    # Up to `top` both agree, except for a score whose last bit differs at the band's edge.
    counted = 1 + scanned.worst[rows, part].astype(np.int64)
    rank = np.where(known <= top, known, np.maximum(counted, top + 1))
    score_A: Scores = scanned.right_A[answers_of(RightAnswers(right.starts, _all(right)), rows)]
    owner_A = np.repeat(np.arange(len(rows)), right.counts[rows])
    outranks = score_A - BAND > scanned.score[rows, part][owner_A]
    above = np.bincount(owner_A, outranks, minlength=len(rows))
    wrong = scanned.wrong[rows, part].astype(np.int64)
    wrong_rank = np.where(rank > 1, 1, np.maximum(1 + above, 2)).astype(np.int64)
    return ExactRanks(rank, wrong, np.where(wrong < 0, -1, wrong_rank))


def _all(right: RightAnswers) -> Ids:
    return np.arange(len(right.ids))
