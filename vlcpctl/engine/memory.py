"""Mini-batches of the buffer, drawn beside the training batches: a pure function of their number.

Nothing is drawn from a random stream, so a resumed run needs no state to continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vlcpctl.core.hashing import integer_hash
from vlcpctl.data.batch_plan import BatchPlan
from vlcpctl.data.order import Order
from vlcpctl.data.task import Split

NAME = "memory"


@dataclass(frozen=True)
class Memory:
    """The buffer in mini-batches of `size` pairs, with one caption drawn for each.

    Every epoch over the buffer is shuffled again. Pairs that do not fill its last mini-batch are
    left out, as in training.
    """

    buffer: Split
    size: int
    seed: int

    def plan(self, number: int) -> BatchPlan:
        """The mini-batch number `number`, from 0 without end; each array is (size,)."""
        epoch, inside = divmod(number, len(self.buffer) // self.size)
        row = self._order.rows(epoch, inside * self.size, (inside + 1) * self.size)
        caption = np.array([self._caption(epoch, place) for place in row.tolist()])
        return BatchPlan(
            source=np.zeros(self.size, dtype=np.int64),
            row=row,
            caption=caption,
            visit=np.full(self.size, epoch),
        )

    @cached_property
    def _order(self) -> Order:
        return Order(len(self.buffer), self.seed, NAME)

    @cached_property
    def _caption_counts(self) -> np.ndarray:
        return self.buffer.caption_counts()

    def _caption(self, epoch: int, row: int) -> int:
        # By key and not by row: a pair keeps its draw if the buffer is stored in another order.
        draw = integer_hash(self.seed, NAME, "caption", epoch, self.buffer.keys[row])
        return draw % int(self._caption_counts[row])
