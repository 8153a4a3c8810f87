"""The exact rank of every query's best right answer, and its best wrong answer.

`ranks.rank` stops at the largest cut-off, and its search returns no more candidates than that
takes. Here every score is computed, in double precision and in tiles: about twice the work of the
search itself.
Shapes: Q queries, G gallery rows, A right answers of all queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from vlcpctl.evaluation.search.candidates import BAND, QueryAndGallery, Scores
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.ranks import ExactRanks, Queries, Ranks, answers_of, right_scores

_TILE_ROWS = 1024  # queries; with 8192 of the gallery, a tile of scores takes 64 MB
_GPU_TILE_ROWS = 1 << 14  # the gallery is copied to the GPU once for each tile of queries
_TILE_COLUMNS = 8192
_EQUAL = 1e-9  # copies of one embedding may differ in the last bits, by their place in a tile


@torch.inference_mode()
def exact_ranks(queries: Queries, known: Ranks, top: int, device: str) -> ExactRanks:
    """The exact ranks of queries whose ranks up to `top` are known.

    As everywhere, a right answer loses its ties: a wrong answer within the tie band ranks above it.
    Of equal wrong answers, the first in the gallery is the best. `device` is auto, cpu or cuda.
    """
    has_gpu = device != "cpu" and torch.cuda.is_available()
    sides = QueryAndGallery(queries.query_QD, queries.gallery_GD)
    place, size = ("cuda", _GPU_TILE_ROWS) if has_gpu else ("cpu", _TILE_ROWS)
    parts = []
    for start in range(0, len(queries.query_QD), size):
        rows = np.arange(start, min(start + size, len(queries.query_QD)))
        tile = _Tile(sides, queries.right, rows, torch.device(place))
        parts.append(tile.ranks(known.worst[rows], top))
    nothing = np.empty(0, dtype=np.int64)
    columns = zip(*parts, strict=True) if parts else [(nothing,)] * 3
    return ExactRanks(*(np.concatenate(column) for column in columns))


class _Tile:
    """Some queries with the exact scores of their right answers."""

    def __init__(
        self, sides: QueryAndGallery, right: RightAnswers, rows: Ids, device: torch.device
    ) -> None:
        self.sides, self.rows, self.device = sides, rows, device
        self.answer_A = answers_of(right, rows)
        self.query_A, self.score_A = right_scores(sides, right, rows)

    def ranks(self, known: Ids, top: int) -> tuple[Ids, Ids, Ids]:
        """The fields of `ExactRanks` for these queries."""
        best = np.full(len(self.rows), -np.inf)
        np.maximum.at(best, self.query_A, self.score_A)
        count, wrong, score = self._scan(best - BAND)
        # Up to `top` both agree, except for a score whose last bit differs at the band's edge.
        rank = np.where(known <= top, known, np.maximum(1 + count, top + 1))
        above = np.bincount(self.query_A, self._outranks(score), minlength=len(rank))
        wrong_rank = np.where(rank > 1, 1, np.maximum(1 + above, 2)).astype(np.int64)
        return rank, wrong, np.where(wrong < 0, -1, wrong_rank)

    def _outranks(self, wrong: Scores) -> Scores:
        """(A,) 1 for a right answer that ranks above its query's best wrong answer, else 0."""
        outranks: Scores = (self.score_A - BAND > wrong[self.query_A]).astype(np.float64)
        return outranks

    def _scan(self, edge_Q: Scores) -> tuple[Ids, Ids, Scores]:
        """Per query: wrong answers that score at least `edge`, the best of all, and its score."""
        queries = self._on_device(self.sides.query_QD[self.rows])
        edge = self._on_device(edge_Q)[:, None]
        count = torch.zeros(len(edge), dtype=torch.int64, device=self.device)
        wrong = torch.full_like(count, -1)
        best = torch.full((len(edge),), -torch.inf, dtype=torch.float64, device=self.device)
        for start, gallery in self._columns():
            scores = queries @ gallery.T
            is_here = (self.answer_A >= start) & (self.answer_A < start + len(gallery))
            place = (self.query_A[is_here], self.answer_A[is_here] - start)
            scores[tuple(torch.from_numpy(one).to(self.device) for one in place)] = -torch.inf
            count += (scores >= edge).sum(dim=1)
            here = scores.amax(dim=1)
            first = (scores >= here[:, None] - _EQUAL).to(torch.uint8).argmax(dim=1)
            is_better = here > best + _EQUAL
            wrong = torch.where(is_better, first + start, wrong)
            best = torch.where(is_better, here, best)
        return count.cpu().numpy(), wrong.cpu().numpy(), best.cpu().numpy()

    def _columns(self) -> Iterator[tuple[int, Tensor]]:
        """Each part of the gallery with its first row."""
        for start in range(0, len(self.sides.gallery_GD), _TILE_COLUMNS):
            yield start, self._on_device(self.sides.gallery_GD[start : start + _TILE_COLUMNS])

    def _on_device(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values.astype(np.float64)).to(self.device)
