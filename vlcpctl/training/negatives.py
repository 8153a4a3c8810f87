"""Warnings about the negatives of a run: true matches among them, or hardly any. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# Pairs to be contrasted with, times this: the most training pairs that are looked at. Hashing the
# captions of a million takes seconds, and a task with so many rarely repeats what a queue holds.
_LOOKED_AT = 50


@dataclass(frozen=True)
class Negatives:
    """The pairs of a batch, and those of earlier batches in a queue, at its fullest."""

    batch: int
    queue: int

    @property
    def count(self) -> int:
        """The number of negatives of a pair, with --negatives all."""
        return self.batch + self.queue - 1

    def are_looked_at(self, pairs: int) -> bool:
        """Whether groups of so many training pairs are computed only to warn about them."""
        return pairs <= _LOOKED_AT * (self.batch + self.queue)

    def matches(self, sizes_G: np.ndarray[Any, Any]) -> float:
        """The expected number of negatives of a pair that are in its group, of these sizes.

        A batch has a pair once; a queue has pairs of several epochs, the same one included.
        """
        pairs = sizes_G.sum()
        mean = (sizes_G**2).sum() / pairs  # the size of the group of a pair
        return float((mean - 1) * (self.batch - 1) / max(pairs - 1, 1) + mean * self.queue / pairs)

    def warnings_if_all(self, sizes_G: np.ndarray[Any, Any]) -> Iterator[str]:
        """A warning if there are fewer groups than pairs in batch and queue, and true matches."""
        matches = f"{self.matches(sizes_G):.1f}"
        if len(sizes_G) >= self.batch + self.queue or float(matches) == 0:
            return
        where = " (batch and queue)" if self.queue else ""
        yield (
            f"each of the {sizes_G.sum()} training pairs has {self.count} negatives{where}, of "
            f"which about {matches} are true matches: the pair itself, or pairs "
            "that share its image or a caption; --negatives distinct leaves them out"
        )


def warnings_if_distinct(sizes_G: np.ndarray[Any, Any]) -> Iterator[str]:
    """A warning if most pairs are in one group, and so are not negatives of each other."""
    pairs, largest = int(sizes_G.sum()), int(sizes_G.max())
    if 2 * largest <= pairs:
        return
    how_many = "all" if largest == pairs else f"{largest} of the"
    effect = (
        "the contrastive loss is 0" if largest == pairs else "they are not negatives of each other"
    )
    yield (
        f"{how_many} {pairs} training pairs are in one group, as they share images or captions, "
        f"directly or through others: with --negatives distinct {effect}; --negatives all uses "
        "them all"
    )
