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
from vlcpctl.evaluation.search.growing import BlockSearch, Segment, blocks_of, open_segments
from vlcpctl.evaluation.search.hits import ClassSearch, Hits, add_right_scores, find_hits
from vlcpctl.evaluation.search.index import Ids, OpenIndex, Vectors
from vlcpctl.evaluation.search.items import GrowingItems

_SHIFTS = (-BAND, BAND)  # at worst, at best


class GrowingHits:
    """The hits among the first `top` places in the galleries of the first 1, 2, ... N parts."""

    def __init__(self, items: GrowingItems, open_index: OpenIndex, top: int) -> None:
        self.items, self.top = items, top
        search, ends = items.whole, items.gallery_ends
        # One bit for each place of the list.
        shape = (len(search.class_Q), len(ends), -(-top // 8))
        self._worst, self._best = (np.zeros(shape, dtype=np.uint8) for _ in range(2))
        segments = open_segments(search.sides.gallery_GD, ends, open_index)
        for rows in blocks_of(shape[0]):
            block = _Block(items, rows, top)
            for segment in segments:
                block.search(segment)
                for number in range(segment.first, segment.end):
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
    id_BW: Ids


@dataclass(frozen=True)
class _Found:
    """Wrong answers that a search found for some places of a block."""

    places: Ids
    score_BK: Vectors  # -inf for what is not a wrong answer, or of no use
    id_BK: Ids
    part_BK: Ids


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
        self._sides = (self.hits.worst, self.hits.best)
        self.right_NBR = self._right_in_parts(items.gallery_ends)
        wrong = 2 * top + 1  # as many candidates as `find_hits` starts with
        self.wrong = _WrongAnswers(
            np.full((count, wrong), -np.inf, dtype=np.float32),
            np.full((count, wrong), -1, dtype=np.int64),
        )
        self.gallery_ends = items.gallery_ends
        self.block, self.found, self.searched = BlockSearch(query_BD), list[_Found](), 0

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

    def search(self, segment: Segment) -> None:
        """Find the wrong answers in a segment that may be of use."""
        bound_B, self.found = self.bounds(), []

        def settle(places: Ids, score_BK: Vectors, id_BK: Ids) -> Ids:
            bound = bound_B[places]
            is_cut: Mask = (score_BK[:, -1] > bound) & (score_BK.shape[1] < segment.size)
            is_of_use = (score_BK > bound[:, None]) & ~is_cut[:, None] & (id_BK >= 0)
            is_of_use &= self.class_G[id_BK] != self.class_B[places, None]
            self._note(places, np.where(is_of_use, score_BK, np.float32(-np.inf)), id_BK)
            return places[is_cut]

        size, rows = (
            self.wrong.score_BW.shape[1],
            slice(segment.start, segment.start + segment.size),
        )
        first = 1 + size // (1 + self.searched)
        self.searched += 1
        wanted_B = np.where(np.isin(self.class_B, self.class_G[rows]), size, 1)
        self.block.search(segment, first, wanted_B, settle)

    def _note(self, places: Ids, score_BK: Vectors, id_BK: Ids) -> None:
        has_some = np.isfinite(score_BK).any(axis=1)
        scores, ids = score_BK[has_some], id_BK[has_some]
        parts = np.searchsorted(self.gallery_ends, ids, side="right")
        self.found.append(_Found(places[has_some], scores, ids, parts))

    def _merge(self, number: int) -> Mask:
        """Merge the wrong answers of a part into the lists; return (B,) whose list changed."""
        has_changed: Mask = np.zeros(len(self.class_B), dtype=np.bool_)
        for found in self.found:
            is_here = (found.part_BK == number) & np.isfinite(found.score_BK)
            # Of no use if the list is full of better ones by now.
            floor = self.wrong.score_BW[found.places, -1]
            is_here &= found.score_BK > floor[:, None]
            rows = np.flatnonzero(is_here.any(axis=1))
            if len(rows):
                kept = np.where(is_here[rows], found.score_BK[rows], np.float32(-np.inf))
                self._enter(found.places[rows], kept, found.id_BK[rows])
                has_changed[found.places[rows]] = True
        return has_changed

    def _enter(self, places: Ids, score_BK: Vectors, id_BK: Ids) -> None:
        size = self.wrong.score_BW.shape[1]
        scores = np.concatenate([self.wrong.score_BW[places], score_BK], axis=1)
        ids = np.concatenate([self.wrong.id_BW[places], id_BK], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :size]
        self.wrong.score_BW[places] = np.take_along_axis(scores, order, axis=1)
        self.wrong.id_BW[places] = np.take_along_axis(ids, order, axis=1)

    def place(self, number: int) -> Ids:
        """Update the hits to those in the parts up to `number`; return the places not sure."""
        right_BR = self.right_NBR[number]
        is_new = self._merge(number) | (self.part_B == number)
        if number and right_BR is not self.right_NBR[number - 1]:
            is_new |= (right_BR != self.right_NBR[number - 1]).any(axis=1)
        places = np.flatnonzero(is_new & (self.part_B <= number))
        return places[self._place(places, right_BR[places])]

    def _place(self, places: Ids, right_PR: Scores) -> Mask:
        """Record the hits of some places; return which of them are not sure."""
        edges = [(hits, right_PR + shift) for hits, shift in zip(self._sides, _SHIFTS, strict=True)]
        scores = self._decided(places, [edge for _, edge in edges])
        bound, is_unsure = self.bounds()[places], np.zeros(len(places), dtype=np.bool_)
        for hit_BR, edge_PR in edges:
            row = np.zeros(right_PR.shape, dtype=np.bool_)
            for answer in range(self.top):
                edge = edge_PR[:, answer]
                at = answer + np.sum(scores >= edge[:, None], axis=1)
                is_hit = np.isfinite(edge) & (at < self.top)
                row[is_hit, at[is_hit]] = True
                is_unsure |= is_hit & (bound >= edge - ERROR)
            hit_BR[places] = row
        return is_unsure

    def _decided(self, places: Ids, edges: list[Scores]) -> Scores:
        """The scores (P, W) of wrong answers, exact where float32 could decide a comparison."""
        scores = self.wrong.score_BW[places].astype(np.float64)
        is_near: Mask = np.zeros(scores.shape, dtype=np.bool_)
        for given_PR in edges:
            edge_PR = np.where(np.isfinite(given_PR), given_PR, np.inf)  # -inf - -inf is NaN
            for answer in range(self.top):
                is_near |= np.abs(scores - edge_PR[:, answer : answer + 1]) <= ERROR
        row, _ = np.nonzero(is_near)
        ids = self.wrong.id_BW[places][is_near]
        scores[is_near] = exact_scores(self.sides, places[row], ids)
        return scores
