"""Which places of each query's result list hold right answers; a tie is never a hit.

The list is the gallery without the query, best first; of tied items the wrong ones come first. An
answer is right if it is of the query's class. Shapes: Q queries, G gallery rows, N places of the
list, K candidates, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.candidates import (
    BAND,
    Mask,
    QueryAndGallery,
    Scores,
    SearchCandidates,
    search_until_settled,
)
from vlcpctl.evaluation.search.index import Ids, Index, Vectors

_TILE_ROWS = 512  # queries of one class; with 8192 of the gallery, a tile of scores takes 32 MB
_TILE_COLUMNS = 8192


@dataclass(frozen=True)
class ClassSearch:
    """Queries and a gallery with their classes, and the gallery row of each query itself."""

    sides: QueryAndGallery
    class_Q: Ids
    class_G: Ids
    itself_Q: Ids  # a gallery row of the query's class, or -1

    def right_counts(self) -> Ids:
        """(Q,) number of right answers per query, not counting the query itself."""
        sizes = np.bincount(self.class_G, minlength=1 + int(self.class_Q.max(initial=0)))
        counts: Ids = sizes[self.class_Q] - (self.itself_Q >= 0)
        return counts


@dataclass(frozen=True)
class Hits:
    """(Q, N) whether a place holds a right answer: at worst (it loses its ties) and at best."""

    worst: Mask
    best: Mask


def find_hits(search: ClassSearch, index: Index, top: int) -> Hits:
    """The hits among the first `top` places; `index` holds the gallery.

    The n-th best right answer is at place n plus the number of wrong ones that outrank it.
    """
    right_QN = best_right_scores(search, top)
    hits = Hits(np.zeros(right_QN.shape, dtype=bool), np.zeros(right_QN.shape, dtype=bool))

    def settle(rows: Ids, score_QK: Vectors, id_QK: Ids) -> Ids:
        is_wrong = search.class_G[id_QK] != search.class_Q[rows, None]
        found = SearchCandidates(search.sides, rows, score_QK, id_QK, (id_QK >= 0) & is_wrong)
        return _place_block(found, right_QN[rows], hits)

    # Enough for a good model: `top` right answers, the query itself and as many wrong ones.
    wanted_Q = np.full(len(right_QN), 2 * top + 1, dtype=np.int64)
    search_until_settled(search.sides, index, wanted_Q, settle)
    return hits


def best_right_scores(search: ClassSearch, top: int) -> Scores:
    """(Q, N) exact scores of each query's best right answers, best first; -inf where it has fewer.

    Computed class by class, not by the search: right answers may rank below all its candidates.
    """
    best_QN = np.full((len(search.class_Q), top), -np.inf)
    add_right_scores(search, best_QN)
    return best_QN


def add_right_scores(search: ClassSearch, best_QN: Scores) -> None:
    """Merge the scores of right answers into the best ones (Q, N) so far, in place."""
    top = best_QN.shape[1]
    for rows, members in _of_each_class(search):
        queries = search.sides.query_QD[rows].astype(np.float64)
        gallery = search.sides.gallery_GD[members].astype(np.float64)
        scores = queries @ gallery.T
        scores[members == search.itself_Q[rows, None]] = -np.inf
        both = np.concatenate([best_QN[rows], scores], axis=1)
        best_QN[rows] = -np.sort(np.partition(-both, top - 1, axis=1)[:, :top], axis=1)


def _place_block(found: SearchCandidates, right_QN: Scores, hits: Hits) -> Ids:
    """Record the hits of a block of queries; return the rows that need more candidates."""
    top = right_QN.shape[1]
    is_cut = np.zeros(len(found.row_Q), dtype=bool)
    for hit_QN, shift in ((hits.worst, -BAND), (hits.best, BAND)):
        hit_QN[found.row_Q] = False
        for number in range(top):
            is_there = np.isfinite(right_QN[:, number])
            edge_Q = np.where(is_there, right_QN[:, number] + shift, np.inf)
            place_Q = number + found.count_rivals(edge_Q)  # from 0
            is_hit = is_there & (place_Q < top)
            hit_QN[found.row_Q[is_hit], place_Q[is_hit]] = True
            is_cut |= is_hit & found.may_miss(edge_Q)
    return found.row_Q[is_cut]


def _of_each_class(search: ClassSearch) -> Iterator[tuple[Ids, Ids]]:
    """Tiles of each class: rows of its queries, with rows of its gallery entries."""
    order_Q = np.argsort(search.class_Q, kind="stable")
    order_G = np.argsort(search.class_G, kind="stable")
    for name in np.intersect1d(search.class_Q, search.class_G):
        queries = _run(search.class_Q, order_Q, name)
        members = _run(search.class_G, order_G, name)
        for start in range(0, len(queries), _TILE_ROWS):
            rows = queries[start : start + _TILE_ROWS]
            for first in range(0, len(members), _TILE_COLUMNS):
                yield rows, members[first : first + _TILE_COLUMNS]


def _run(classes: Ids, order: Ids, name: int) -> Ids:
    """The rows of one class, given all rows sorted by class."""
    first, last = np.searchsorted(classes, [name, name + 1], sorter=order)
    return order[first:last]
