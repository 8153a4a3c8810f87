"""Which places of each query's result list hold right answers; a tie is never a hit.

The list is the gallery without the query, best first; of tied items the wrong ones come first. An
answer is right if it is of the query's class: its place is its number among the right ones plus the
number of wrong ones that outrank it. So of each query the exact scores of its best right answers
are kept, and its best wrong ones. Those are FAISS's candidates, in one gallery, or come from all
scores, part by part. The few queries with too few wrong ones to be sure are searched in float64.
Shapes: Q queries, B of a block, P some of them, N parts, R places of the list, W wrong answers, C
gallery rows of a tile, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.index import (
    BAND,
    ERROR,
    Ids,
    Index,
    Mask,
    QueryAndGallery,
    Scores,
    Vectors,
    exact_scores,
)
from vlcpctl.evaluation.search.items import ClassSearch, GrowingItems
from vlcpctl.evaluation.search.scan import device_of, product, tiles

_BLOCK_ROWS = 1024
_TILE_ROWS = 512  # queries of one class; with 8192 of the gallery, a tile of scores takes 32 MB
_TILE_COLUMNS = 8192
_SCAN_COLUMNS = 2048
_SPARE = 6  # wrong answers beyond the places of the list


@dataclass(frozen=True)
class Hits:
    """(Q, R) whether a place holds a right answer: at worst (it loses its ties) and at best."""

    worst: Mask
    best: Mask


@dataclass(frozen=True)
class HitSearch:
    """The hits among the first `top` places in the galleries of the first 1, 2, ... N parts.

    `bits` are those of `find_hits`, of all queries.
    """

    items: GrowingItems
    top: int
    bits: np.ndarray

    @classmethod
    def of(cls, items: GrowingItems, backend: Backend, top: int) -> HitSearch:
        """Search for the hits of all queries."""
        bits = find_hits(items, backend, top, range(len(items.whole.class_Q)))
        return cls(items, top, bits)

    def first(self, parts: int = 1) -> Hits:
        """The hits in the gallery of the first parts."""
        rows = slice(self.items.query_ends[parts - 1])
        bits = self.bits.reshape(2, -1, *self.bits.shape[1:])[:, parts - 1, rows]
        return Hits(*np.unpackbits(bits, axis=2, count=self.top).astype(np.bool_))


def find_hits(items: GrowingItems, backend: Backend, top: int, some: range) -> np.ndarray:
    """(2 N, Q, bytes) a bit for each place of the list of some queries, given their rows.

    First those at worst in each of the N galleries, then those at best.
    """
    search, ends = items.whole, items.gallery_ends
    index = None
    if backend.open_index is not None and len(ends) == 1:
        index = backend.open_index(search.sides.gallery_GD)
    bits = np.zeros((2, len(ends), len(some), -(-top // 8)), dtype=np.uint8)
    for start in range(some.start, some.stop, _BLOCK_ROWS):
        rows = slice(start, min(start + _BLOCK_ROWS, some.stop))
        block = _Block(items, rows, top)
        found = block.scan(backend.device) if index is None else block.candidates(index)
        for part in found:
            block.place(part)
            own = slice(rows.start - some.start, rows.stop - some.start)
            bits[:, part, own] = np.packbits(block.hits, axis=2)
    return bits.reshape(-1, *bits.shape[2:])


class _Block:
    """Some queries with their best right and wrong answers in the parts so far."""

    def __init__(self, items: GrowingItems, rows: slice, top: int) -> None:
        whole, self.ends, self.top = items.whole, items.gallery_ends, top
        self.sides = QueryAndGallery(whole.sides.query_QD[rows], whole.sides.gallery_GD)
        self.search = ClassSearch(
            self.sides, whole.class_Q[rows], whole.class_G, whole.itself_Q[rows]
        )
        count = len(self.search.class_Q)
        numbers = np.arange(rows.start, rows.start + count)
        self.part_B = np.searchsorted(items.query_ends, numbers, side="right")
        self.hits = np.zeros((2, count, top), dtype=np.bool_)  # at worst, at best
        self.right_NBR = self._right_in_parts()
        self.is_new_B = np.zeros(count, dtype=np.bool_)
        # Wrong answers, best first, by float32 scores; no other exceeds the bound.
        self.score_BW: Vectors = np.empty((count, 0), dtype=np.float32)
        self.id_BW: Ids = np.empty((count, 0), dtype=np.int64)
        self.bound_B: Scores = np.full(count, -np.inf)

    def _right_in_parts(self) -> list[Scores]:
        """(B, R) the best right answers in the first 1, 2, ... parts; sets `least_B`."""
        search, best_BR = self.search, np.full((len(self.search.class_Q), self.top), -np.inf)
        self.least_B, start, found = np.full(len(best_BR), -np.inf), 0, list[Scores]()
        for number, end in enumerate(self.ends.tolist()):
            class_G = search.class_G[start:end]
            if len(np.intersect1d(search.class_Q, class_G)):
                best_BR = best_BR.copy()
                sides = QueryAndGallery(self.sides.query_QD, self.sides.gallery_GD[start:end])
                # Shifted; a query that is not itself in this part matches no row of it.
                itself = np.where(search.itself_Q >= start, search.itself_Q - start, -1)
                add_right_scores(ClassSearch(sides, search.class_Q, class_G, itself), best_BR)
            found.append(best_BR)
            # With a full list of right answers, a query never needs wrong ones that score less: the
            # list only gets better.
            born = self.part_B == number
            self.least_B[born] = best_BR[born, -1] - BAND - 2 * ERROR
            start = end
        return found

    def candidates(self, index: Index) -> Iterator[int]:
        """Find the wrong answers among the candidates of an index; give the only part."""
        size = len(self.search.class_G)
        k = min(2 * self.top + 1, size)
        score_BK, self.id_BW = index.search(self.sides.query_QD[:], k)
        is_wrong = self.search.class_G[self.id_BW] != self.search.class_Q[:, None]
        self.score_BW = np.where(is_wrong & (self.id_BW >= 0), score_BK, np.float32(-np.inf))
        if k < size:
            self.bound_B = score_BK[:, -1].astype(np.float64)
        yield 0

    @torch.inference_mode()
    def scan(self, device: str) -> Iterator[int]:
        """Find the wrong answers part by part; give each part."""
        place = device_of(device)
        here = [torch.from_numpy(one).to(place) for one in (self.sides.query_QD, self.least_B)]
        query_BD, least_B = here[0], here[1].float()
        classes = [torch.from_numpy(one) for one in (self.search.class_Q, self.search.class_G)]
        class_B, class_G = (one.to(place, torch.int32) for one in classes)
        width = self.top + _SPARE
        score_BW = torch.full((len(query_BD), width), -torch.inf, device=place)
        id_BW = torch.full((len(query_BD), width), -1, device=place)
        for tile in tiles(self.ends, _SCAN_COLUMNS):
            first, end = tile[0][1], tile[-1][2]
            gallery_CD = torch.from_numpy(self.sides.gallery_GD[first:end]).to(place)
            scores = product(query_BD, gallery_CD)
            scores.masked_fill_(class_B[:, None] == class_G[first:end], -torch.inf)
            for part, start, stop in tile:
                own = scores[:, start - first : stop - first]
                if stop > start:
                    floor = torch.maximum(score_BW[:, -1], least_B)
                    rising = (own.amax(dim=1) > floor).nonzero()[:, 0]
                    best, column = own[rising].topk(min(width, stop - start))
                    both = torch.cat([score_BW[rising], best], dim=1)
                    score_BW[rising], order = both.topk(width)
                    ids = torch.cat([id_BW[rising], column + start], dim=1)
                    id_BW[rising] = ids.gather(1, order)
                    self.is_new_B[rising.cpu().numpy()] = True
                if stop == self.ends[part]:
                    self.score_BW, self.id_BW = score_BW.cpu().numpy(), id_BW.cpu().numpy()
                    self.bound_B = torch.maximum(score_BW[:, -1], least_B).double().cpu().numpy()
                    yield part

    def place(self, part: int) -> None:
        """Update the hits to those in the parts up to this one, from 0."""
        right_BR = self.right_NBR[part]
        is_new = self.is_new_B | (self.part_B == part)
        if part and right_BR is not self.right_NBR[part - 1]:
            is_new |= (right_BR != self.right_NBR[part - 1]).any(axis=1)
        places = np.flatnonzero(is_new & (self.part_B <= part))
        self.is_new_B[:] = False
        right_PR, scores = right_BR[places], self.score_BW[places].astype(np.float64)
        edges = np.where(np.isfinite(right_PR), right_PR, np.inf)[:, None, :]
        is_near = np.abs(np.abs(scores[:, :, None] - edges) - BAND) <= ERROR
        row, column = np.nonzero(is_near.any(axis=2))
        ids = self.id_BW[places[row], column]
        scores[row, column] = exact_scores(self.sides, places[row], ids)
        unsure = places[self._hit(places, right_PR, scores, self.bound_B[places])]
        for start in range(0, len(unsure), _TILE_ROWS):
            some = unsure[start : start + _TILE_ROWS]
            scores = self._best_wrong(some, int(self.ends[part]))
            self._hit(some, right_BR[some], scores, np.full(len(some), -np.inf))

    def _hit(self, places: Ids, right_PR: Scores, scores: Scores, bound_P: Scores) -> Mask:
        """Record the hits of some queries, given their best wrong answers; return the unsure."""
        is_unsure = np.zeros(len(places), dtype=np.bool_)
        for hits, shift in zip(self.hits, (-BAND, BAND), strict=True):
            edge_PR = right_PR + shift
            at = np.arange(self.top) + np.sum(scores[:, :, None] >= edge_PR[:, None, :], axis=1)
            is_hit = np.isfinite(right_PR) & (at < self.top)
            place, number = np.nonzero(is_hit)
            hits[places] = False
            hits[places[place], at[place, number]] = True
            is_unsure |= np.any(is_hit & (bound_P[:, None] >= edge_PR - ERROR), axis=1)
        return is_unsure

    def _best_wrong(self, places: Ids, end: int) -> Scores:
        """(P, R) exact scores of the best wrong answers before a gallery row."""
        query_PD = self.sides.query_QD[places].astype(np.float64)
        best = np.full((len(places), self.top), -np.inf)
        for start in range(0, end, _TILE_COLUMNS):
            tile = slice(start, min(start + _TILE_COLUMNS, end))
            scores = query_PD @ self.sides.gallery_GD[tile].astype(np.float64).T
            is_right = self.search.class_Q[places, None] == self.search.class_G[tile]
            both = np.concatenate([best, np.where(is_right, -np.inf, scores)], axis=1)
            best = np.partition(both, -self.top, axis=1)[:, -self.top :]
        return best


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
