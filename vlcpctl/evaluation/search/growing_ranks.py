"""Ranks in all galleries of the first 1, 2, ... N parts, from one search of the last.

Only wrong answers with at least the score of the best right one, less the tie band, change a rank.
That score does not depend on the search, so these are counted part by part. Each comparison is that
of `ranks.rank`, exact where float32 could decide it otherwise: the ranks are the same.
Shapes: Q queries, V versions of queries, A right answers, G gallery rows, N parts, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vlcpctl.evaluation.search.candidates import (
    BAND,
    ERROR,
    Mask,
    QueryAndGallery,
    Scores,
    SearchCandidates,
)
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.growing import BlockSearch, Segment, blocks_of, open_segments
from vlcpctl.evaluation.search.index import Ids, OpenIndex, Vectors
from vlcpctl.evaluation.search.ranks import (
    Queries,
    Ranks,
    answers_of,
    best_right_scores,
    is_right_answer,
)


@dataclass(frozen=True)
class GrowingQueries:
    """The queries of the last gallery; those of the first n parts are the first of them.

    `query_ends` and `gallery_ends` (N,) are the numbers of rows of the first 1, 2, ... N parts, and
    `part_A` is the part with which each right answer comes.
    """

    whole: Queries
    part_A: Ids
    query_ends: Ids
    gallery_ends: Ids

    @cached_property
    def versions(self) -> Versions:
        """The queries with each set of right answers that they have in turn."""
        return _versions(self)


@dataclass(frozen=True)
class Versions:
    """Queries with the right answers that they have from part `since` to before part `until`.

    A query whose right answers grow later has several versions, one after the other.
    """

    sides: QueryAndGallery  # with a row per version
    right: RightAnswers
    since_V: Ids
    until_V: Ids

    def at(self, parts: int) -> Ids:
        """The version of each query in the gallery of the first parts, in order."""
        return np.flatnonzero((self.since_V < parts) & (self.until_V >= parts))


@dataclass(frozen=True)
class GrowingRanks:
    """(V, N) wrong answers in the first 1, 2, ... N parts that outrank, up to `top`."""

    versions: Versions
    worst_VN: np.ndarray
    best_VN: np.ndarray

    def first(self, parts: int) -> Ranks:
        """The ranks in the gallery of the first parts, as `ranks.rank` gives them."""
        rows = self.versions.at(parts)
        worst, best = (
            1 + counts[rows, parts - 1].astype(np.int64) for counts in (self.worst_VN, self.best_VN)
        )
        return Ranks(worst, best)


def growing_ranks(queries: GrowingQueries, open_index: OpenIndex, top: int) -> GrowingRanks:
    """The ranks up to `top` in the galleries of the first 1, 2, ... N parts."""
    versions, ends = queries.versions, queries.gallery_ends
    segments = open_segments(queries.whole.gallery_GD, ends, open_index)
    shape = (len(versions.since_V), len(ends))
    kind = np.min_scalar_type(top)
    found = GrowingRanks(versions, *(np.zeros(shape, dtype=kind) for _ in range(2)))
    right = _RightIn(versions)
    for rows in blocks_of(shape[0]):
        block = _Block(versions, rows, top, ends)
        for segment in segments:
            worst, best = block.count(segment, right.of(rows, segment))
            found.worst_VN[rows, segment.first : segment.end] = worst
            found.best_VN[rows, segment.first : segment.end] = best
    return found


class _Block:
    """Some versions of queries, and how many wrong answers outrank them in the parts so far."""

    def __init__(self, versions: Versions, rows: slice, top: int, gallery_ends: Ids) -> None:
        self.versions, self.first, self.top = versions, rows.start, top
        self.gallery_ends = gallery_ends
        query_BD = versions.sides.query_QD[rows]
        numbers = np.arange(rows.start, rows.start + len(query_BD))
        self.best_right_B = best_right_scores(versions.sides, versions.right, numbers)
        self.until_B = versions.until_V[rows]
        self.search = BlockSearch(query_BD)
        self.searched = 0  # segments
        self.before = [np.zeros(len(query_BD), dtype=np.int64) for _ in range(2)]

    def count(self, segment: Segment, right_B: Ids) -> list[Ids]:
        """(B, P) wrong answers, up to `top`, at worst and at best, as of each part of a segment.

        `right_B` are the numbers of right answers in the segment.
        """
        size = segment.end - segment.first
        here = [np.zeros((len(right_B), size), dtype=np.int64) for _ in range(2)]
        if not self.search.is_over:
            self._search(segment, right_B, here)
        found = [
            np.minimum(before[:, None] + np.cumsum(counts, axis=1), self.top)
            for before, counts in zip(self.before, here, strict=True)
        ]
        self.before = [counts[:, -1] for counts in found]
        self.search.drop((self.before[1] >= self.top) | (self.until_B <= segment.end))
        return found

    def _search(self, segment: Segment, right_B: Ids, here: list[Ids]) -> None:
        def settle(places: Ids, score_BK: Vectors, id_BK: Ids) -> Ids:
            is_touched = score_BK[:, 0] >= self.best_right_B[places] - (BAND + ERROR)
            some = places[is_touched]
            found = self._candidates(segment, some, score_BK[is_touched], id_BK[is_touched])
            return self._settle(segment, some, found, here)

        # Few segments have rivals of a query; the more came before, the fewer it needs at first.
        first = 1 + self.top // (1 + self.searched)
        self.searched += 1
        wanted_B = np.where(right_B > 0, right_B + first, 1)
        self.search.search(segment, first, wanted_B, settle)

    def _candidates(
        self, segment: Segment, places: Ids, score_BK: Vectors, id_BK: Ids
    ) -> SearchCandidates:
        rows, sides = places + self.first, self.versions.sides
        is_right = is_right_answer(self.versions.right, rows, id_BK, len(sides.gallery_GD))
        is_rival = (id_BK >= 0) & ~is_right
        return SearchCandidates(sides, rows, score_BK, id_BK, is_rival, segment.size)

    def _settle(
        self, segment: Segment, places: Ids, found: SearchCandidates, here: list[Ids]
    ) -> Ids:
        """Record the counts of each part; return the places that need more candidates."""
        is_cut: Mask = np.zeros(len(places), dtype=np.bool_)
        size = segment.end - segment.first
        part_BK = np.searchsorted(self.gallery_ends, found.id_QK, side="right") - segment.first
        for before, counts, shift in zip(self.before, here, (-BAND, BAND), strict=True):
            edge: Scores = self.best_right_B[places] + shift
            row, column = np.nonzero(found.rivals(edge))
            cells = np.bincount(row * size + part_BK[row, column], minlength=len(places) * size)
            counts[places] = cells.reshape(len(places), size)
            # What was missed may be in any part, so the first must have as many as count.
            is_full = before[places] + counts[places, 0] >= self.top
            is_cut |= ~is_full & found.may_miss(edge)
        return places[is_cut]


class _RightIn:
    """How many right answers each version has in a segment of the gallery."""

    def __init__(self, versions: Versions) -> None:
        self.starts, self.ids = versions.right.starts, versions.right.ids

    def of(self, rows: slice, segment: Segment) -> Ids:
        """(B,) the numbers of right answers of the versions in these rows."""
        starts = self.starts[rows.start : rows.stop + 1]
        ids = self.ids[starts[0] : starts[-1]]
        is_here = (ids >= segment.start) & (ids < segment.start + segment.size)
        before = np.concatenate([[0], np.cumsum(is_here)])
        counts: Ids = np.diff(before[starts - starts[0]])
        return counts


def _owners(right: RightAnswers) -> Ids:
    """(A,) the query of each right answer."""
    return np.repeat(np.arange(len(right.counts)), right.counts)


def _versions(queries: GrowingQueries) -> Versions:
    right, parts = queries.whole.right, len(queries.gallery_ends)
    owner_A = _owners(right)
    # One version for each part in which a query has new right answers, in order.
    key_V = np.unique(owner_A * parts + queries.part_A)
    query_V, since_V = key_V // parts, key_V % parts
    is_last = np.append(query_V[1:] != query_V[:-1], [True] * min(1, len(query_V)))
    until_V = np.where(is_last, parts, np.roll(since_V, -1))
    sides = QueryAndGallery(queries.whole.query_QD, queries.whole.gallery_GD)
    if len(query_V) == len(right.counts):
        return Versions(sides, right, since_V, until_V)
    counts = right.counts[query_V]
    ids = answers_of(right, query_V)
    born = answers_of(RightAnswers(right.starts, queries.part_A), query_V)
    is_there = born <= np.repeat(since_V, counts)
    kept = np.bincount(np.repeat(np.arange(len(query_V)), counts)[is_there])
    starts = np.concatenate([[0], np.cumsum(kept)])
    copied = QueryAndGallery(sides.query_QD[query_V], sides.gallery_GD)
    return Versions(copied, RightAnswers(starts, ids[is_there]), since_V, until_V)
