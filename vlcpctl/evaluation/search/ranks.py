"""Ranks of right answers; a tie is never a hit, and every backend gives the same ranks.

Shapes: Q queries, A right answers, K candidates, N parts of a gallery, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import BAND, ERROR, Ids, Index, Mask, exact_scores
from vlcpctl.evaluation.search.queries import ExactRanks, Queries, Ranks
from vlcpctl.evaluation.search.scan import Scanned, scan

_BLOCK_SCORES = 1 << 21  # candidates at once: about 60 MB
_BLOCK_VALUES = 1 << 22  # of the queries that they are of: 16 MB
_SPARE = 2  # candidates beyond those that settle most ranks


@dataclass(frozen=True)
class RankSearch:
    """The ranks in all galleries of the first 1, 2, ... N parts, from one search."""

    queries: Queries
    top: int
    found: Scanned

    def ranks(self, parts: int = 1) -> Ranks:
        """The ranks up to `top` in the gallery of the first parts."""
        rows = self.queries.asked(parts)
        worst, best = (
            1 + np.minimum(counts[parts - 1, rows], self.top).astype(np.int64)
            for counts in (self.found.worst, self.found.best)
        )
        return Ranks(worst, best)

    def exact(self, parts: int = 1) -> ExactRanks:
        """The exact ranks, if the search was for them; a right answer loses its ties."""
        rows, right = self.queries.asked(parts), self.queries.right
        worst, wrong, score = (
            values[parts - 1, rows]
            for values in (self.found.worst, self.found.wrong, self.found.score)
        )
        own = right.at(rows).owners
        outranks = self.queries.right_scores[right.places(rows)] - BAND > score[own]
        above = np.bincount(own, outranks, minlength=len(rows)).astype(np.int64)
        wrong_rank = np.where(worst > 0, 1, np.maximum(1 + above, 2))
        return ExactRanks(
            1 + worst.astype(np.int64),
            wrong.astype(np.int64),
            np.where(wrong < 0, -1, wrong_rank),
        )


def search_ranks(
    queries: Queries, backend: Backend, top: int, *, is_exact: bool = False
) -> RankSearch:
    """Search for the ranks up to `top`, or for the exact ones and the best wrong answers.

    Only wrong answers can outrank a right one, so other right answers do not lower the rank.
    """
    return RankSearch(queries, top, find_ranks(queries, backend, top, is_exact=is_exact))


def find_ranks(queries: Queries, backend: Backend, top: int, *, is_exact: bool) -> Scanned:
    """What ranks are made of; those of some queries are found without the others.

    An index is used in a gallery of one part, for ranks up to `top`; else every score is computed.
    """
    if is_exact:
        return scan(queries, backend.device)
    if backend.open_index is None or queries.parts is not None:
        return scan(queries, backend.device, top)
    found = Scanned.empty(queries, top)
    is_sure = _count(queries, backend.open_index(queries.gallery_GD), top, found)
    rest = np.flatnonzero(~is_sure)
    if len(rest):
        scanned = scan(queries.at(rest), backend.device, top)
        found.worst[:, rest], found.best[:, rest] = scanned.worst, scanned.best
    return found


def _count(queries: Queries, index: Index, top: int, found: Scanned) -> Mask:
    """Count wrong answers among the candidates of an index; return (Q,) which counts are sure."""
    is_sure = np.zeros(len(queries.query_QD), dtype=np.bool_)
    for rows, k in _blocks(queries, top):
        score_QK, id_QK = index.search(queries.query_QD[rows], k)
        is_wrong = (id_QK >= 0) & ~_is_right(queries.right, rows, id_QK, len(queries.gallery_GD))
        best_Q = queries.best_right[rows]
        scores = score_QK.astype(np.float64)
        is_near = np.abs(np.abs(scores - best_Q[:, None]) - BAND) <= ERROR
        places = rows[np.nonzero(is_near)[0]]
        scores[is_near] = exact_scores(queries.sides, places, id_QK[is_near])
        is_whole = k == len(queries.gallery_GD)
        is_sure[rows] = True
        for counts, edge_Q in ((found.worst, best_Q - BAND), (found.best, best_Q + BAND)):
            count_Q = np.sum(is_wrong & (scores >= edge_Q[:, None]), axis=1)
            counts[0, rows] = np.minimum(count_Q, top)
            # A row that is not a candidate may count, too.
            is_sure[rows] &= is_whole | (count_Q >= top) | (score_QK[:, -1] < edge_Q - ERROR)
    return is_sure


def _blocks(queries: Queries, top: int) -> Iterator[tuple[Ids, int]]:
    """Blocks of queries, small enough to fit in memory, with the number of candidates they need.

    With `top` candidates more than right answers tied with the best, they either reach below the
    tie band or hold `top` wrong answers.
    """
    right = queries.right
    is_tied = queries.right_scores >= queries.best_right[right.owners] - 2 * BAND
    tied_Q = np.bincount(right.owners, is_tied, minlength=len(queries.query_QD)).astype(np.int64)
    wanted_Q = np.minimum(top + tied_Q + _SPARE, len(queries.gallery_GD))
    most = _BLOCK_VALUES // max(1, queries.query_QD.shape[1])
    for k in np.unique(wanted_Q).tolist():
        rows, size = np.flatnonzero(wanted_Q == k), max(1, min(most, _BLOCK_SCORES // k))
        yield from ((rows[start : start + size], k) for start in range(0, len(rows), size))


def _is_right(right: RightAnswers, rows: Ids, id_QK: Ids, gallery_size: int) -> Mask:
    """(Q, K) which candidates of these queries are right answers."""
    # A (query, gallery row) pair becomes one number: `known` is sorted, so one search finds all.
    some = right.at(rows)
    known = some.owners * gallery_size + some.ids
    asked = (np.arange(len(rows))[:, None] * gallery_size + id_QK).ravel()
    nearest = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    is_right: Mask = (known[nearest] == asked).reshape(id_QK.shape)
    return is_right
