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
_FULL = 0.75  # share of a block still searched, below which the others are left out of the copy


@dataclass(frozen=True)
class Part:
    """Part `number` of a gallery: its rows from `start`, as an index; numbers count from 0."""

    number: int
    start: int
    size: int
    index: Index


def open_parts(gallery_GD: Vectors, ends_N: Ids, open_index: OpenIndex) -> list[Part]:
    """The parts of a gallery, given the rows at which they end; empty ones are left out."""
    starts = [0, *ends_N[:-1].tolist()]
    return [
        Part(number, start, end - start, open_index(gallery_GD[start:end]))
        for number, (start, end) in enumerate(zip(starts, ends_N.tolist(), strict=True))
        if end > start
    ]


def blocks_of(count: int) -> Iterator[slice]:
    """Slices of so many queries, as large as one `BlockSearch` takes."""
    yield from (slice(start, start + _BLOCK_ROWS) for start in range(0, count, _BLOCK_ROWS))


# Takes places in the block, scores and gallery rows; returns the places that need more candidates.
Settle = Callable[[Ids, Vectors, Ids], Ids]


class BlockSearch:
    """Some queries (B, D), searched in one part after the other, and no longer once dropped."""

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
        # A copy costs as much as a search in a small part, so few queries too many are no matter.
        if is_open.mean() < _FULL:
            self._places = self._places[is_open]
            self._vectors = self.query_BD[self._places]

    def search(self, part: Part, first: int, wanted_B: Ids, settle: Settle) -> None:
        """Search a part with `first` candidates, and with `wanted_B` and more for whom needs them.

        `settle` must return no place once it was given the whole part.
        """
        k = min(first, part.size)
        if np.mean(wanted_B[self._places] > first) > 1 / 2:
            waiting = self._places[self._is_open[self._places]]
        else:
            scores, ids = part.index.search(self._vectors, k)
            waiting = self._settled(part, settle, self._places, scores, ids)
            wanted_B = np.maximum(wanted_B, k * _GROWTH)
        wanted_B = np.minimum(wanted_B, part.size)
        while len(waiting):
            cut = []
            for places, k in _blocks(waiting, wanted_B):
                scores, ids = part.index.search(self.query_BD[places], k)
                cut.append(self._settled(part, settle, places, scores, ids))
            waiting = np.concatenate(cut)
            wanted_B[waiting] = np.minimum(wanted_B[waiting] * _GROWTH, part.size)

    def _settled(self, part: Part, settle: Settle, places: Ids, scores: Vectors, ids: Ids) -> Ids:
        is_open = self._is_open[places]
        if not is_open.all():
            places, scores, ids = places[is_open], scores[is_open], ids[is_open]
        return settle(places, scores, np.where(ids < 0, ids, ids + part.start))


def _blocks(places: Ids, wanted_B: Ids) -> Iterator[tuple[Ids, int]]:
    """Blocks of queries whose candidates fit in memory, with the number that they need."""
    order = places[np.argsort(-wanted_B[places], kind="stable")]
    start = 0
    while start < len(order):
        k = int(wanted_B[order[start]])
        block = order[start : start + max(1, _BLOCK_SCORES // k)]
        yield block, k
        start += len(block)
