"""Hits in all galleries of the first 1, 2, ... N parts, from one search of the last.

Of each query two lists are kept and merged part by part: the exact scores of its best right
answers, and those of its best wrong ones. The few queries for which the second list is too short to
be sure are searched in their gallery. The hits are those of `hits.find_hits`.
Shapes: Q queries, B of a block, G gallery rows, N parts, R places of the list, W wrong answers, K
candidates, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.candidates import (
    BAND,
    ERROR,
    Mask,
    QueryAndGallery,
    Scores,
    exact_scores,
)
from vlcpctl.evaluation.search.growing import BlockSearch, Part, blocks_of, open_parts
from vlcpctl.evaluation.search.hits import ClassSearch, Hits, add_right_scores, find_hits
from vlcpctl.evaluation.search.index import Ids, OpenIndex, Vectors
from vlcpctl.evaluation.search.items import GrowingItems


class GrowingHits:
    """The hits among the first `top` places in the galleries of the first 1, 2, ... N parts."""

    def __init__(self, items: GrowingItems, open_index: OpenIndex, top: int) -> None:
        self.items, self.top = items, top
        search, ends = items.whole, items.gallery_ends
        # One bit for each place of the list.
        shape = (len(search.class_Q), len(ends), -(-top // 8))
        self._worst, self._best = (np.zeros(shape, dtype=np.uint8) for _ in range(2))
        opened = open_parts(search.sides.gallery_GD, ends, open_index)
        parts = {part.number: part for part in opened}
        for rows in blocks_of(shape[0]):
            block = _Block(items, rows, top)
            for number in range(len(ends)):
                block.add(number, parts.get(number))
                unsure = block.place(number)
                if len(unsure):
                    self._search_again(block, unsure, number, open_index)
                self._worst[rows, number] = np.packbits(block.hits.worst, axis=1)
                self._best[rows, number] = np.packbits(block.hits.best, axis=1)

    def first(self, parts: int) -> Hits:
        """The hits in the gallery of the first parts."""
        queries = int(self.items.query_ends[parts - 1])
        worst, best = (
            np.unpackbits(bits[:queries, parts - 1], axis=1, count=self.top).astype(np.bool_)
            for bits in (self._worst, self._best)
        )
        return Hits(worst, best)

    def _search_again(self, block: _Block, places: Ids, number: int, open_index: OpenIndex) -> None:
        """Search for some queries of a block in the gallery up to part `number`, from 0."""
        search, rows = self.items.first(number + 1), places + block.first
        some = _some(search, self.items.whole, rows)
        found = find_hits(some, open_index(search.sides.gallery_GD), self.top)
        block.hits.worst[places], block.hits.best[places] = found.worst, found.best


def _some(search: ClassSearch, whole: ClassSearch, rows: Ids) -> ClassSearch:
    """Some queries of all, in the gallery of a search."""
    sides = QueryAndGallery(whole.sides.query_QD[rows], search.sides.gallery_GD)
    itself = whole.itself_Q[rows]
    itself = np.where(itself < len(search.class_G), itself, -1)
    return ClassSearch(sides, whole.class_Q[rows], search.class_G, itself)


@dataclass(frozen=True)
class _WrongAnswers:
    """The best wrong answers of each query (B, W) by their float32 scores, best first."""

    score_BW: Vectors  # -inf where there are fewer
    exact_BW: Scores


class _Block:
    """Some queries with their best right and wrong answers in the parts so far."""

    def __init__(self, items: GrowingItems, rows: slice, top: int) -> None:
        whole = items.whole
        query_BD = whole.sides.query_QD[rows]
        self.first, self.top, count = rows.start, top, len(query_BD)
        self.sides = QueryAndGallery(query_BD, whole.sides.gallery_GD)
        self.class_B, self.class_G = whole.class_Q[rows], whole.class_G
        self.itself_B = whole.itself_Q[rows]
        numbers = np.arange(rows.start, rows.start + count)
        self.part_B = np.searchsorted(items.query_ends, numbers, side="right")
        self.hits = Hits(np.zeros((count, top), np.bool_), np.zeros((count, top), np.bool_))
        self.right_NBR = self._right_in_parts(items.gallery_ends)
        wrong = 2 * top + 1  # as many candidates as `find_hits` starts with
        empty = np.full((count, wrong), -np.inf)
        self.wrong = _WrongAnswers(empty.astype(np.float32), empty)
        self.search = BlockSearch(query_BD)
        self.is_new = np.zeros(count, dtype=np.bool_)

    def _right_in_parts(self, ends: Ids) -> list[Scores]:
        """(B, R) the best right answers in the first 1, 2, ... parts; sets `least_B`."""
        found: list[Scores] = []
        best_BR = np.full((len(self.class_B), self.top), -np.inf)
        self.least_B = np.full(len(self.class_B), -np.inf)
        for number, (start, end) in enumerate(
            zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        ):
            some = np.intersect1d(self.class_B, self.class_G[start:end])
            if len(some):
                best_BR = best_BR.copy()
                sides = QueryAndGallery(self.sides.query_QD, self.sides.gallery_GD[start:end])
                # Shifted; a query that is not itself in this part matches no row of it.
                itself = np.where(self.itself_B >= start, self.itself_B - start, -1)
                part = ClassSearch(sides, self.class_B, self.class_G[start:end], itself)
                add_right_scores(part, best_BR)
            found.append(best_BR)
            # With a full list of right answers, a query never needs wrong ones that score less: the
            # list only gets better.
            born = self.part_B == number
            self.least_B[born] = best_BR[born, -1] - BAND - 2 * ERROR
        return found

    def bounds(self) -> Scores:
        """(B,) float32 score that no wrong answer outside the list exceeds."""
        bound: Scores = np.maximum(self.wrong.score_BW[:, -1], self.least_B)
        return bound

    def add(self, number: int, part: Part | None) -> None:
        """Merge the wrong answers of part `number` into the lists; None is a part without rows."""
        self.is_new[:] = self.part_B == number
        if part is not None:
            self._search(part)

    def _search(self, part: Part) -> None:
        bound_B = self.bounds()

        def settle(places: Ids, score_BK: Vectors, id_BK: Ids) -> Ids:
            bound = bound_B[places]
            is_cut: Mask = (score_BK[:, -1] > bound) & (score_BK.shape[1] < part.size)
            is_wrong = (id_BK >= 0) & (self.class_G[id_BK] != self.class_B[places, None])
            is_wrong &= (score_BK > bound[:, None]) & ~is_cut[:, None]
            has_some = is_wrong.any(axis=1)
            kept = np.where(is_wrong[has_some], score_BK[has_some], np.float32(-np.inf))
            self._merge(places[has_some], kept, id_BK[has_some])
            return places[is_cut]

        first = 1 + self.wrong.score_BW.shape[1] // (1 + part.number)
        start, end = part.start, part.start + part.size
        has_right = np.isin(self.class_B, self.class_G[start:end])
        wanted_B = np.where(has_right, self.wrong.score_BW.shape[1], 1)
        self.search.search(part, first, wanted_B, settle)

    def _merge(self, places: Ids, score_BK: Vectors, id_BK: Ids) -> None:
        size = self.wrong.score_BW.shape[1]
        scores = np.concatenate([self.wrong.score_BW[places], score_BK], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
        self.wrong.score_BW[places] = chosen = np.take_along_axis(scores, order, axis=1)
        exact = np.concatenate([self.wrong.exact_BW[places], np.full(id_BK.shape, -np.inf)], axis=1)
        exact = np.take_along_axis(exact, order, axis=1)
        row, column = np.nonzero((order >= size) & np.isfinite(chosen))
        found = id_BK[row, order[row, column] - size]
        exact[row, column] = exact_scores(self.sides, places[row], found)
        self.wrong.exact_BW[places] = exact
        self.is_new[places] = True

    def place(self, number: int) -> Ids:
        """Update the hits to those in the parts up to `number`; return the places not sure."""
        right_BR = self.right_NBR[number]
        if number and right_BR is not self.right_NBR[number - 1]:
            self.is_new |= (right_BR != self.right_NBR[number - 1]).any(axis=1)
        places = np.flatnonzero(self.is_new & (self.part_B <= number))
        right, exact = right_BR[places], self.wrong.exact_BW[places]
        bound, is_unsure = self.bounds()[places], np.zeros(len(places), dtype=np.bool_)
        for hits, shift in ((self.hits.worst, -BAND), (self.hits.best, BAND)):
            row = np.zeros((len(places), self.top), dtype=np.bool_)
            for answer in range(self.top):
                edge = right[:, answer] + shift
                at = answer + np.sum(exact >= edge[:, None], axis=1)
                is_hit = np.isfinite(edge) & (at < self.top)
                row[is_hit, at[is_hit]] = True
                is_unsure |= is_hit & (bound >= edge - ERROR)
            hits[places] = row
        return places[is_unsure]
