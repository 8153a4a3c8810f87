"""Which pairs make up each batch: a pure function of the settings and the step.

Nothing here is drawn from a stream that could be lost: a position is (phase, step).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vlcpctl.core.errors import UsageError
from vlcpctl.core.hashing import integer_hash
from vlcpctl.data.batch_plan import BatchPlan
from vlcpctl.data.order import Order
from vlcpctl.data.task import Split
from vlcpctl.engine.settings import Settings, replay_share


@dataclass(frozen=True)
class Pool:
    """Rows that one shuffle runs over, each a place (source, row) in the open splits."""

    name: str
    source: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Round:
    """A part of an epoch: its pool, the pairs that each batch takes, the caption used."""

    pool: Pool
    share: int
    caption: int | None  # None: drawn by (seed, epoch, key)

    @property
    def steps(self) -> int:
        return len(self.pool) // self.share

    @cached_property
    def label(self) -> str:
        return self.pool.name if self.caption is None else f"{self.pool.name}/caption{self.caption}"


class Pairs:
    """The training pairs of a run, batch by batch; what does not fill a batch is left out."""

    def __init__(
        self,
        tasks: Sequence[Split],
        buffer: Split | None,
        settings: Settings,
        seed: int,
        limit: int | None = None,
    ) -> None:
        self.splits = [*tasks, *([buffer] if buffer else [])]
        self.settings, self.seed = settings, seed
        share = replay_share(settings.replay) if buffer else None
        pools = _pools(tasks, buffer, apart=share is not None, limit=limit)
        replayed = (
            min(round((share or 0) * settings.batch_size), len(pools[1])) if len(pools) > 1 else 0
        )
        self.rounds = self._rounds(pools[0], settings.batch_size - replayed)
        self.replay = Round(pools[1], replayed, None) if replayed else None
        self.buffer_source = len(tasks) if buffer else -1
        self.epoch_steps = sum(part.steps for part in self.rounds)
        if not self.epoch_steps:
            raise UsageError(
                f"--batch-size {settings.batch_size} is larger than the data "
                f"({len(pools[0])} pairs); "
                f"at most {len(pools[0])} works here"
            )

    def __len__(self) -> int:
        """Pairs that one epoch trains on."""
        return self.epoch_steps * self.settings.batch_size

    def plan(self, step: int) -> BatchPlan:
        """The batch of a step, counted from the start of the phase."""
        epoch, inside = divmod(step, self.epoch_steps)
        for part in self.rounds:
            if inside < part.steps:
                break
            inside -= part.steps
        picked = self._pick(part, epoch, inside)
        if self.replay:
            again = self._pick(self.replay, *divmod(step, self.replay.steps))
            picked = tuple(np.concatenate(pair) for pair in zip(picked, again, strict=True))
        source, row, caption, visit = picked
        return BatchPlan(source=source, row=row, caption=caption, visit=visit)

    def _pick(self, part: Round, epoch: int, step: int) -> tuple[np.ndarray, ...]:
        order = self._orders.setdefault(part.label, Order(len(part.pool), self.seed, part.label))
        at = order.rows(epoch, step * part.share, (step + 1) * part.share)
        source, row = part.pool.source[at], part.pool.row[at]
        caption = np.array(
            [self._caption(part, epoch, s, r) for s, r in zip(source, row, strict=True)]
        )
        return source, row, caption, np.full(len(row), epoch)

    @cached_property
    def _orders(self) -> dict[str, Order]:
        return {}

    @cached_property
    def _caption_counts(self) -> list[np.ndarray]:
        return [split.caption_counts() for split in self.splits]

    def _caption(self, part: Round, epoch: int, source: int, row: int) -> int:
        if part.caption is not None:
            return part.caption
        count = int(self._caption_counts[source][row])
        return (
            0
            if count == 1
            else integer_hash(self.seed, "caption", epoch, self.splits[source].keys[row]) % count
        )

    def _rounds(self, pool: Pool, share: int) -> list[Round]:
        """One round an epoch, or, with every caption a pair, one round for each caption number.

        An image is in a round once, so a key never occurs twice in a batch.
        """
        if self.settings.captions == "one":
            return [Round(pool, share, None)]
        counts = np.array(
            [self._caption_counts[s][r] for s, r in zip(pool.source, pool.row, strict=True)]
        )
        rounds = [
            Round(
                Pool(pool.name, pool.source[counts > number], pool.row[counts > number]),
                share,
                number,
            )
            for number in range(int(counts.max(initial=0)))
        ]
        return [part for part in rounds if part.steps]


def _pools(
    tasks: Sequence[Split], buffer: Split | None, *, apart: bool, limit: int | None
) -> list[Pool]:
    """Task and buffer rows, each key once: as one pool, or as two when the buffer has its share."""
    seen: set[str] = set()
    pools = []
    for source, split in enumerate([*tasks, *([buffer] if buffer else [])]):
        rows = np.array(
            [row for row, key in enumerate(split.keys) if key not in seen], dtype=np.int64
        )
        rows = rows[:limit] if source < len(tasks) else rows
        seen.update(split.keys)
        pools.append(
            Pool("replay" if source == len(tasks) else "pairs", np.full(len(rows), source), rows)
        )
    if apart:
        return [_together(pools[: len(tasks)]), *pools[len(tasks) :]]
    return [_together(pools)]


def _together(pools: Sequence[Pool]) -> Pool:
    return Pool(
        "pairs",
        np.concatenate([pool.source for pool in pools]),
        np.concatenate([pool.row for pool in pools]),
    )
