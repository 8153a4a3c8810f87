"""The order in which rows are read, and the rows of one batch.

The order is a pure function of (seed, name, epoch, position).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vlcpctl.core.seeds import generator

BLOCK = 1 << 12  # rows that are adjacent on disk
WINDOW = 16  # number of blocks whose rows are shuffled together


class Order:
    """A seeded shuffle of rows: of blocks, then of the rows inside each window of blocks.

    Rows that are adjacent on disk are read close together, which keeps reads local; data no larger
    than a window (65,536 rows by default) is shuffled uniformly. The order has no state to save:
    any position of any epoch can be computed directly, so a run resumes at any step.

    >>> order = Order(5, seed=0, name="pairs")
    >>> sorted(order.rows(0, 0, 5).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self, rows: int, seed: int, name: str, *, block: int = BLOCK, window: int = WINDOW
    ) -> None:
        self._shuffle = _Shuffle(rows, seed, name, block, window)

    def row(self, epoch: int, position: int) -> int:
        """The row at a position, 0..rows-1, of an epoch."""
        return int(self.rows(epoch, position, position + 1)[0])

    def rows(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """(stop - start,) int64: the rows at positions start..stop-1 of an epoch."""
        assert 0 <= start <= stop <= self._shuffle.count
        _, begins = _blocks(self._shuffle, epoch)
        first, last = np.searchsorted(begins, (start, stop - 1), side="right") - 1
        pieces = [
            _window(self._shuffle, epoch, number)[
                max(start - begins[number], 0) : stop - begins[number]
            ]
            for number in range(first, last + 1)
            if start < stop
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class _Shuffle:
    count: int
    seed: int
    name: str
    block: int
    window: int


# Module functions with a cache, not cached attributes: an Order stays a few numbers, which pickle
# cheaply to worker processes.
@lru_cache(maxsize=8)
def _blocks(shuffle: _Shuffle, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """The blocks in shuffled order, and the position at which each window of them starts."""
    blocks = -(-shuffle.count // shuffle.block)
    order = generator(shuffle.seed, "blocks", shuffle.name, epoch).permutation(blocks)
    sizes = np.full(blocks, shuffle.block)
    sizes[order == blocks - 1] -= blocks * shuffle.block - shuffle.count  # the last is not full
    ends = np.cumsum(sizes)
    return order, np.concatenate([[0], ends[shuffle.window - 1 : -1 : shuffle.window]])


@lru_cache(maxsize=8)
def _window(shuffle: _Shuffle, epoch: int, number: int) -> np.ndarray:
    """The rows of a window, in shuffled order."""
    order, _ = _blocks(shuffle, epoch)
    blocks = order[number * shuffle.window : (number + 1) * shuffle.window]
    starts = blocks[:, None] * shuffle.block + np.arange(shuffle.block)
    rows = starts[starts < shuffle.count]
    return generator(shuffle.seed, "rows", shuffle.name, epoch, number).permutation(rows)


@dataclass(frozen=True)
class BatchPlan:
    """The B pairs of a batch; all arrays are (B,) integers."""

    source: np.ndarray  # index into the open splits
    row: np.ndarray  # row in that split
    caption: np.ndarray  # which of the row's captions
    visit: np.ndarray  # how often the row was visited before; it seeds the view's augmentation
