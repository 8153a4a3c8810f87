"""The order that rows are read in: a pure function of (seed, name, epoch, place), nothing to lose or save."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vlcpctl.core.seeds import generator

BLOCK = 1 << 12  # rows that lie together on disk
WINDOW = 16  # blocks whose rows are shuffled together


class Order:
    """A keyed permutation of blocks, then of the rows inside a window of blocks.

    Rows that lie together are read together, so a window fits a cache; data of one window or less
    is one plain permutation.

    >>> order = Order(5, seed=0, name="pairs")
    >>> sorted(order.rows(0, 0, 5).tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self, rows: int, seed: int, name: str, *, block: int = BLOCK, window: int = WINDOW
    ) -> None:
        self.count, self.seed, self.name = rows, seed, name
        self.block, self.window = block, window
        self._window_rows = lru_cache(maxsize=2)(self._shuffled_window)
        self._blocks = lru_cache(maxsize=1)(self._shuffled_blocks)

    def row(self, epoch: int, place: int) -> int:
        """The row at one place of an epoch."""
        return int(self.rows(epoch, place, place + 1)[0])

    def rows(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The rows at places start..stop-1 of an epoch."""
        assert 0 <= start <= stop <= self.count
        pieces, begin = [], 0
        for number in range(self._windows):
            size = self._window_size(epoch, number)
            low, high = max(start - begin, 0), min(stop - begin, size)
            if low < high:
                pieces.append(self._window_rows(epoch, number)[low:high])
            begin += size
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)

    @property
    def _windows(self) -> int:
        return -(-self._block_count // self.window)

    @property
    def _block_count(self) -> int:
        return -(-self.count // self.block)

    def _window_size(self, epoch: int, number: int) -> int:
        blocks = self._blocks(epoch)[number * self.window : (number + 1) * self.window]
        short = self._block_count * self.block - self.count  # the last block is not full
        return len(blocks) * self.block - (short if self._block_count - 1 in blocks else 0)

    def _shuffled_blocks(self, epoch: int) -> np.ndarray:
        return generator(self.seed, "blocks", self.name, epoch).permutation(self._block_count)

    def _shuffled_window(self, epoch: int, number: int) -> np.ndarray:
        blocks = self._blocks(epoch)[number * self.window : (number + 1) * self.window]
        rows = np.concatenate(
            [np.arange(b * self.block, min((b + 1) * self.block, self.count)) for b in blocks]
        )
        return generator(self.seed, "rows", self.name, epoch, number).permutation(rows)
