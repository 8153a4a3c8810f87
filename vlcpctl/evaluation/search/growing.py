"""Search in a gallery that grows part by part: each query meets each gallery row once.

The gallery of the first n parts is the start of the whole one, so ranks in all of these galleries
follow from one search of the last. Shapes: B queries of a block, G gallery rows, N parts, K
candidates, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.index import Ids, Index, OpenIndex, Vectors

_BLOCK_ROWS = 4096  # queries at once: their vectors stay in the cache for all parts
_BLOCK_SCORES = 1 << 21
_GROWTH = 8  # times as many candidates if the first were too few
_SEGMENT_ROWS = 1024  # parts are joined up to so many rows: a search in few rows is slow
_FULL = 0.75  # share of a block still searched, below which the others are left out of the copy


@dataclass(frozen=True)
class Segment:
    """Consecutive parts of a gallery, from number `first` to before `end`, searched together.

    They begin at gallery row `start`, and have `size` rows, which may be 0.
    """

    first: int
    end: int
    start: int
    size: int
    index: Index | None  # None without rows


def open_segments(gallery_GD: Vectors, ends_N: Ids, open_index: OpenIndex) -> list[Segment]:
    """All parts of a gallery in segments, given the rows at which the parts end.

    A segment has at most about as many rows as those before it: what they hold bounds what is worth
    finding in the next one.
    """
    found, ends = [], [0, *ends_N.tolist()]
    first = 0
    for number in range(1, len(ends)):
        start, size = ends[first], ends[number] - ends[first]
        if size >= min(_SEGMENT_ROWS, start) or number == len(ends) - 1:
            index = open_index(gallery_GD[start : start + size]) if size else None
            found.append(Segment(first, number, start, size, index))
            first = number
    return found


def blocks_of(count: int) -> Iterator[slice]:
    """Slices of so many queries, as large as one `BlockSearch` takes."""
    yield from (slice(start, start + _BLOCK_ROWS) for start in range(0, count, _BLOCK_ROWS))


# Takes places in the block, scores and gallery rows; returns the places that need more candidates.
Settle = Callable[[Ids, Vectors, Ids], Ids]


class BlockSearch:
    """Some queries (B, D), searched in one segment after the other, and no longer once dropped."""

    def __init__(self, query_BD: Vectors) -> None:
        self.query_BD = query_BD
        self._places, self._vectors = np.arange(len(query_BD)), query_BD
        self._is_open = np.ones(len(query_BD), dtype=np.bool_)

    @property
    def is_over(self) -> bool:
        """Whether every query was dropped."""
        return not self._is_open.any()

    def drop(self, is_done_B: np.ndarray) -> None:
        """Search no longer for these queries, (B,) bool."""
        self._is_open &= ~is_done_B
        is_open = self._is_open[self._places]
        # A copy costs as much as a search in a small segment: a few too many are cheaper.
        if is_open.sum() < _FULL * len(is_open):
            self._places = self._places[is_open]
            self._vectors = self.query_BD[self._places]

    def search(self, within: Segment, first: int, wanted_B: Ids, settle: Settle) -> None:
        """Search with `first` candidates, and with `wanted_B` and more for those that need them.

        `settle` must return no place once it was given the whole segment.
        """
        if within.index is None:
            return
        k = min(first, within.size)
        if np.sum(wanted_B[self._places] > first) > len(self._places) / 2:
            waiting = self._places[self._is_open[self._places]]
        else:
            scores, ids = within.index.search(self._vectors, k)
            waiting = self._settled(within, settle, self._places, scores, ids)
            wanted_B = np.maximum(wanted_B, k * _GROWTH)
        wanted_B = np.minimum(wanted_B, within.size)
        while len(waiting):
            cut = []
            for places, k in _blocks(waiting, wanted_B):
                scores, ids = within.index.search(self.query_BD[places], k)
                cut.append(self._settled(within, settle, places, scores, ids))
            waiting = np.concatenate(cut)
            wanted_B[waiting] = np.minimum(wanted_B[waiting] * _GROWTH, within.size)

    def _settled(
        self, within: Segment, settle: Settle, places: Ids, scores: Vectors, ids: Ids
    ) -> Ids:
        is_open = self._is_open[places]
        if not is_open.all():
            places, scores, ids = places[is_open], scores[is_open], ids[is_open]
        return settle(places, scores, np.where(ids < 0, ids, ids + within.start))


def _blocks(places: Ids, wanted_B: Ids) -> Iterator[tuple[Ids, int]]:
    """Blocks of queries whose candidates fit in memory, with the number that they need."""
    order = places[np.argsort(-wanted_B[places], kind="stable")]
    start = 0
    while start < len(order):
        k = int(wanted_B[order[start]])
        block = order[start : start + max(1, _BLOCK_SCORES // k)]
        yield block, k
        start += len(block)
