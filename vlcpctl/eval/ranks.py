"""Ranks of the right answers, where a tie is never a hit and every backend gives the same number.

A backend finds candidates; what lies too near an edge of the tie band for its float32 scores to be
trusted is scored again in float64. Shapes: Q queries, G gallery rows, K candidates, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.eval.gallery import Right
from vlcpctl.eval.search import Ids, Index, Vectors

BAND = 1e-5  # scores that are not further apart are tied
ERROR = 4e-6  # float32 inner products of unit vectors were seen to be wrong by up to 1.1e-6
_GROWTH = 8  # times as many candidates where the first were too few
_BLOCK_SCORES = 1 << 21  # candidates at once: some 60 MB
_TILE_ROWS = 8192

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Ranks:
    """The rank of each query's best right answer, from 1, if it loses its ties and if it wins them.

    A rank beyond `top` is given as top + 1.
    """

    worst: Ids
    best: Ids


@dataclass(frozen=True)
class Queries:
    """Queries with their gallery and their right answers; every query has one at least."""

    query_QD: Vectors
    gallery_GD: Vectors
    right: Right


def rank(queries: Queries, index: Index, top: int) -> Ranks:
    """The ranks up to `top`; `index` holds the queries' gallery.

    A right answer is outranked by wrong ones only, so a query's other right answers cost nothing.
    """
    count, size = len(queries.query_QD), len(queries.gallery_GD)
    ranks = Ranks(np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64))
    # With `top` more than there are right answers, either the candidates reach below the tie band
    # or `top` of them are wrong; only a cut that falls where float32 cannot tell asks for more.
    wanted_Q = np.minimum(queries.right.counts + top, size)
    waiting = np.arange(count)
    while len(waiting):
        blocks = _blocks(waiting, wanted_Q)
        cut = [_rank_block(_Found.by(index, queries, rows, k), ranks, top) for rows, k in blocks]
        waiting = np.concatenate(cut)
        wanted_Q[waiting] = np.minimum(wanted_Q[waiting] * _GROWTH, size)
    return ranks


def _rank_block(found: _Found, ranks: Ranks, top: int) -> Ids:
    """Note the ranks of a block of queries; the rows of those that need more candidates."""
    best_right = found.best_right()
    is_cut = np.zeros(len(found.row_Q), dtype=bool)
    for rank_Q, edge_Q in ((ranks.worst, best_right - BAND), (ranks.best, best_right + BAND)):
        count_Q = found.count_rivals(edge_Q)
        rank_Q[found.row_Q] = 1 + np.minimum(count_Q, top)
        is_cut |= (count_Q < top) & found.may_miss(edge_Q)
    return found.row_Q[is_cut]


def _blocks(rows: Ids, wanted_Q: Ids) -> Iterator[tuple[Ids, int]]:
    """Queries with the number of candidates they need, few enough at once to fit in memory."""
    order = rows[np.argsort(-wanted_Q[rows], kind="stable")]
    start = 0
    while start < len(order):
        k = int(wanted_Q[order[start]])
        block = order[start : start + max(1, _BLOCK_SCORES // k)]
        yield block, k
        start += len(block)


@dataclass(frozen=True)
class _Found:
    """The candidates of a block of queries."""

    queries: Queries
    row_Q: Ids
    score_QK: Vectors
    id_QK: Ids
    is_rival_QK: Mask

    @classmethod
    def by(cls, index: Index, queries: Queries, rows: Ids, k: int) -> _Found:
        score_QK, id_QK = index.search(queries.query_QD[rows], k)
        is_right = _is_right(queries.right, rows, id_QK, len(queries.gallery_GD))
        return cls(queries, rows, score_QK, id_QK, (id_QK >= 0) & ~is_right)

    def best_right(self) -> Scores:
        """The score of each query's best right answer."""
        counts = self.queries.right.counts[self.row_Q]
        starts = np.cumsum(counts) - counts
        answers = _answers(self.queries.right, self.row_Q)
        scores = self._exact(np.repeat(self.row_Q, counts), answers)
        best: Scores = np.maximum.reduceat(scores, starts)
        return best

    def count_rivals(self, edge_Q: Scores) -> Ids:
        """How many wrong answers among the candidates score at least `edge`."""
        scores = self.score_QK.astype(np.float64)
        is_near = np.abs(scores - edge_Q[:, None]) <= ERROR
        place, _ = np.nonzero(is_near)
        scores[is_near] = self._exact(self.row_Q[place], self.id_QK[is_near])
        counts: Ids = np.sum(self.is_rival_QK & (scores >= edge_Q[:, None]), axis=1)
        return counts

    def may_miss(self, edge_Q: Scores) -> Mask:
        """Whether what is not among the candidates may score at least `edge`."""
        has_all = self.id_QK.shape[1] == len(self.queries.gallery_GD)
        mask: Mask = (self.score_QK[:, -1] >= edge_Q - ERROR) & (not has_all)
        return mask

    def _exact(self, query_rows: Ids, gallery_rows: Ids) -> Scores:
        """Inner products in float64, the same whichever backend asked."""
        scores = np.empty(len(query_rows))
        for start in range(0, len(scores), _TILE_ROWS):
            tile = slice(start, start + _TILE_ROWS)
            queries = self.queries.query_QD[query_rows[tile]].astype(np.float64)
            gallery = self.queries.gallery_GD[gallery_rows[tile]].astype(np.float64)
            scores[tile] = np.einsum("nd,nd->n", queries, gallery)
        return scores


def _is_right(right: Right, rows: Ids, id_QK: Ids, gallery_size: int) -> Mask:
    """Which candidates are right answers."""
    place = np.arange(len(rows))
    known = np.repeat(place, right.counts[rows]) * gallery_size + _answers(right, rows)
    asked = (place[:, None] * gallery_size + id_QK).ravel()
    nearest = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    is_right: Mask = (known[nearest] == asked).reshape(id_QK.shape)
    return is_right


def _answers(right: Right, rows: Ids) -> Ids:
    """The right answers of these queries, one after another."""
    counts = right.counts[rows]
    starts = np.cumsum(counts) - counts
    shift = np.repeat(right.starts[rows] - starts, counts)
    answers: Ids = right.ids[np.arange(counts.sum()) + shift]
    return answers
