"""The exact rank of every query's best right answer, and its best wrong answer.

`ranks.rank` stops at the largest cut-off, and its search returns no more candidates than that
takes. Here every score is computed, in double precision and in tiles: about twice the work of the
search itself, and done once for all galleries of the first 1, 2, ... N parts.
Shapes: Q queries, G gallery rows, A right answers of all queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vlcpctl.evaluation.search.candidates import BAND, QueryAndGallery, Scores
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.growing_ranks import GrowingQueries, Versions
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.ranks import ExactRanks, Queries, Ranks, answers_of, right_scores

_TILE_ROWS = 1024  # queries; with 8192 of the gallery, a tile of scores takes 64 MB
_GPU_TILE_ROWS = 1 << 14  # the gallery is copied to the GPU once for each tile of queries
_TILE_COLUMNS = 8192
_EQUAL = 1e-9  # copies of one embedding may differ in the last bits, by their place in a tile


@dataclass(frozen=True)
class _Scanned:
    """For each query (Q,): how many wrong answers outrank its best right one (`count`).

    `wrong` is its best wrong answer, and `best` the score of that answer.
    """

    count: Ids
    wrong: Ids  # -1 without any
    best: Scores

    def ranks(self, right: tuple[Ids, Scores], known: Ids, top: int) -> ExactRanks:
        """The ranks, given the query (A,) and score (A,) of each right answer."""
        query_A, score_A = right
        # Up to `top` both agree, except for a score whose last bit differs at the band's edge.
        rank = np.where(known <= top, known, np.maximum(1 + self.count, top + 1))
        outranks = (score_A - BAND > self.best[query_A]).astype(np.float64)
        above = np.bincount(query_A, outranks, minlength=len(rank))
        wrong_rank = np.where(rank > 1, 1, np.maximum(1 + above, 2)).astype(np.int64)
        return ExactRanks(rank, self.wrong, np.where(self.wrong < 0, -1, wrong_rank))


def exact_ranks(queries: Queries, known: Ranks, top: int, device: str) -> ExactRanks:
    """The exact ranks of queries whose ranks up to `top` are known.

    As everywhere, a right answer loses its ties: a wrong answer within the tie band ranks above it.
    Of equal wrong answers, the first in the gallery is the best. `device` is auto, cpu or cuda.
    """
    sides = QueryAndGallery(queries.query_QD, queries.gallery_GD)
    ends = np.array([len(sides.gallery_GD)])
    scanned, score_A = _scan(sides, queries.right, ends, device)
    rows = np.arange(len(sides.query_QD))
    owner_A = np.repeat(rows, queries.right.counts)
    return _take(scanned, rows, 0).ranks((owner_A, score_A), known.worst, top)


class GrowingExactRanks:
    """The exact ranks in all galleries of the first 1, 2, ... N parts."""

    def __init__(self, queries: GrowingQueries, device: str) -> None:
        self.versions: Versions = queries.versions
        right = self.versions.right
        scanned, self._score_A = _scan(self.versions.sides, right, queries.gallery_ends, device)
        self._scanned = scanned

    def first(self, parts: int, known: Ranks, top: int) -> ExactRanks:
        """The ranks of the gallery of the first parts, as `exact_ranks` gives them."""
        right, rows = self.versions.right, self.versions.at(parts)
        counts = right.counts[rows]
        score_A = self._score_A[answers_of(RightAnswers(right.starts, _all(right)), rows)]
        owner_A = np.repeat(np.arange(len(rows)), counts)
        found = _take(self._scanned, rows, parts - 1)
        return found.ranks((owner_A, score_A), known.worst, top)


def _all(right: RightAnswers) -> Ids:
    return np.arange(len(right.ids))


def _take(scanned: _Scanned, rows: Ids, part: int) -> _Scanned:
    """What was found in the parts up to this one, from 0, of the queries in these rows."""
    return _Scanned(
        scanned.count[rows, part].astype(np.int64),
        scanned.wrong[rows, part].astype(np.int64),
        scanned.best[rows, part],
    )


@torch.inference_mode()
def _scan(
    sides: QueryAndGallery, right: RightAnswers, ends_N: Ids, device: str
) -> tuple[_Scanned, Scores]:
    """(Q, N) what is found in the first 1, 2, ... N parts, and the scores of right answers (A,)."""
    has_gpu = device != "cpu" and torch.cuda.is_available()
    place, size = ("cuda", _GPU_TILE_ROWS) if has_gpu else ("cpu", _TILE_ROWS)
    shape = (len(sides.query_QD), len(ends_N))
    kind = np.int32 if len(sides.gallery_GD) < np.iinfo(np.int32).max else np.int64
    found = _Scanned(np.zeros(shape, kind), np.zeros(shape, kind), np.zeros(shape))
    score_A = np.zeros(len(right.ids))
    for start in range(0, shape[0], size):
        rows = np.arange(start, min(start + size, shape[0]))
        tile = _Tile(sides, right, rows, torch.device(place))
        score_A[right.starts[rows[0]] : right.starts[rows[-1] + 1]] = tile.score_A
        for part, (count, wrong, best) in enumerate(tile.scan(ends_N)):
            found.count[rows, part] = count.cpu().numpy()
            found.wrong[rows, part] = wrong.cpu().numpy()
            found.best[rows, part] = best.cpu().numpy()
    return found, score_A


class _Tile:
    """Some queries with the exact scores of their right answers."""

    def __init__(
        self, sides: QueryAndGallery, right: RightAnswers, rows: Ids, device: torch.device
    ) -> None:
        self.sides, self.rows, self.device = sides, rows, device
        self.answer_A = answers_of(right, rows)
        self.query_A, self.score_A = right_scores(sides, right, rows)

    def scan(self, ends_N: Ids) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """After each part, per query: wrong answers that outrank, the best, and its score."""
        edge_Q = np.full(len(self.rows), -np.inf)
        np.maximum.at(edge_Q, self.query_A, self.score_A)
        queries = self._on_device(self.sides.query_QD[self.rows])
        edge = self._on_device(edge_Q - BAND)[:, None]
        count = torch.zeros(len(edge), dtype=torch.int64, device=self.device)
        wrong = torch.full_like(count, -1)
        best = torch.full((len(edge),), -torch.inf, dtype=torch.float64, device=self.device)
        for first, end in zip([0, *ends_N[:-1].tolist()], ends_N.tolist(), strict=True):
            for start, gallery in self._columns(first, end):
                scores = self._without_right(queries @ gallery.T, start)
                count = count + (scores >= edge).sum(dim=1)
                here = scores.amax(dim=1)
                nearest = (scores >= here[:, None] - _EQUAL).to(torch.uint8).argmax(dim=1)
                is_better = here > best + _EQUAL
                wrong = torch.where(is_better, nearest + start, wrong)
                best = torch.where(is_better, here, best)
            yield count, wrong, best

    def _without_right(self, scores: Tensor, start: int) -> Tensor:
        """The scores of gallery rows from `start`, those of right answers set to -inf."""
        is_here = (self.answer_A >= start) & (self.answer_A < start + scores.shape[1])
        place = (self.query_A[is_here], self.answer_A[is_here] - start)
        scores[tuple(torch.from_numpy(one).to(self.device) for one in place)] = -torch.inf
        return scores

    def _columns(self, first: int, end: int) -> Iterator[tuple[int, Tensor]]:
        """Each tile of the gallery rows from `first` to before `end`, with its first row."""
        for start in range(first, end, _TILE_COLUMNS):
            tile = slice(start, min(start + _TILE_COLUMNS, end))
            yield start, self._on_device(self.sides.gallery_GD[tile])

    def _on_device(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.float64)).to(self.device)
