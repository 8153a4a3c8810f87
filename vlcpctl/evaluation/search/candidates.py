"""Candidates of a search: enough that float32 rounding cannot change a rank.

A backend finds candidates and scores them in float32. Scores too near an edge of the tie band to be
trusted are computed again in float64, so that all backends give the same ranks.
Shapes: Q queries, G gallery rows, K candidates, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.evaluation.search.index import Ids, Index, Vectors

BAND = 1e-5  # scores that differ by less are tied
ERROR = 4e-6  # bound on the float32 error of inner products of unit vectors; 1.1e-6 was seen
_GROWTH = 8  # times as many candidates if the first were too few
_BLOCK_SCORES = 1 << 21  # candidates at once: about 60 MB
_TILE_ROWS = 256  # pairs at once: their vectors in double precision stay in the cache

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class QueryAndGallery:
    """Query embeddings and the gallery embeddings they are searched in, at unit length."""

    query_QD: Vectors
    gallery_GD: Vectors


@dataclass(frozen=True)
class SearchCandidates:
    """Search results of a block of queries, numbered by `row_Q`; a rival is a wrong answer.

    `searched` is the number of gallery rows in which they were found; None means all of them.
    """

    sides: QueryAndGallery
    row_Q: Ids
    score_QK: Vectors
    id_QK: Ids
    is_rival_QK: Mask
    searched: int | None = None

    def count_rivals(self, edge_Q: Scores) -> Ids:
        """(Q,) number of wrong answers among the candidates that score at least `edge`."""
        counts: Ids = np.sum(self.rivals(edge_Q), axis=1)
        return counts

    def rivals(self, edge_Q: Scores) -> Mask:
        """(Q, K) which candidates are wrong answers that score at least `edge`."""
        scores = self.score_QK.astype(np.float64)
        is_near = np.abs(scores - edge_Q[:, None]) <= ERROR
        place, _ = np.nonzero(is_near)
        scores[is_near] = exact_scores(self.sides, self.row_Q[place], self.id_QK[is_near])
        mask: Mask = self.is_rival_QK & (scores >= edge_Q[:, None])
        return mask

    def may_miss(self, edge_Q: Scores) -> Mask:
        """(Q,) whether a searched row outside the candidates may score at least `edge`."""
        searched = len(self.sides.gallery_GD) if self.searched is None else self.searched
        has_all = self.id_QK.shape[1] == searched
        mask: Mask = (self.score_QK[:, -1] >= edge_Q - ERROR) & (not has_all)
        return mask


def exact_scores(sides: QueryAndGallery, query_rows: Ids, gallery_rows: Ids) -> Scores:
    """(N,) float64 inner products of N pairs of rows, the same with every search backend."""
    scores = np.empty(len(query_rows))
    for start in range(0, len(scores), _TILE_ROWS):
        tile = slice(start, start + _TILE_ROWS)
        queries = sides.query_QD[query_rows[tile]].astype(np.float64)
        gallery = sides.gallery_GD[gallery_rows[tile]].astype(np.float64)
        scores[tile] = np.einsum("nd,nd->n", queries, gallery)
    return scores


def search_until_settled(
    sides: QueryAndGallery, index: Index, wanted_Q: Ids, settle: Callable[[Ids, Vectors, Ids], Ids]
) -> None:
    """Search for every query, with `wanted_Q` candidates at first, then with ever more.

    `settle` takes the rows, scores and ids of a block, and returns the rows that need more
    candidates; with the whole gallery as candidates it must return none.
    """
    size = len(sides.gallery_GD)
    wanted_Q = np.minimum(wanted_Q, size)
    waiting = np.arange(len(sides.query_QD))
    while len(waiting):
        cut = [
            settle(rows, *index.search(sides.query_QD[rows], k))
            for rows, k in _blocks(waiting, wanted_Q)
        ]
        waiting = np.concatenate(cut)
        wanted_Q[waiting] = np.minimum(wanted_Q[waiting] * _GROWTH, size)


def _blocks(rows: Ids, wanted_Q: Ids) -> Iterator[tuple[Ids, int]]:
    """Blocks of queries, small enough to fit in memory, with the number of candidates they need."""
    # Sorted, so that few queries are searched for more candidates than they need.
    order = rows[np.argsort(-wanted_Q[rows], kind="stable")]
    start = 0
    while start < len(order):
        k = int(wanted_Q[order[start]])
        block = order[start : start + max(1, _BLOCK_SCORES // k)]
        yield block, k
        start += len(block)
