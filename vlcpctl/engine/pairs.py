"""Which pairs make up each batch: a pure function of the settings and the optimizer step.

Nothing is drawn from a random stream, whose state would have to be saved: to resume at any step,
the step is enough.
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
    """Pairs that are shuffled together: (N,) indices into the open splits, and (N,) rows there."""

    name: str
    source: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Round:
    """A part of an epoch: one pass over a pool, `share` pairs in each batch."""

    pool: Pool
    share: int
    caption: int | None  # which caption of each image; None: drawn by (seed, epoch, key)

    @property
    def steps(self) -> int:
        return len(self.pool) // self.share

    @cached_property
    def label(self) -> str:
        return self.pool.name if self.caption is None else f"{self.pool.name}/caption{self.caption}"


class Pairs:
    """The training pairs of a run, batch by batch.

    Pairs that do not fill the last batch of an epoch are left out: a contrastive loss depends on
    the batch size. Raises UsageError if a batch is larger than the data.
    """

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
        # A buffer smaller than its share is replayed whole: filling up would repeat keys in a
        # batch. New pairs take the places that are left.
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
                f"({len(pools[0])} pairs); use at most {len(pools[0])}"
            )

    def __len__(self) -> int:
        """The number of pairs that one epoch trains on, replayed ones included."""
        return self.epoch_steps * self.settings.batch_size

    def plan(self, step: int) -> BatchPlan:
        """The batch of a step, counted from the first epoch of training; each array is (B,)."""
        epoch, inside = divmod(step, self.epoch_steps)
        for part in self.rounds:
            if inside < part.steps:
                break
            inside -= part.steps
        picked = self._pick(part, epoch, inside)
        if self.replay:
            # The buffer counts its own epochs: it is much smaller than the task's data, and is
            # shuffled again whenever all of it was replayed.
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
        """One round per epoch, or with `--captions all` one round for each caption number.

        Round k has the images with more than k captions, each with caption k.
        """
        # With all captions in one shuffle, two captions of an image could meet in a batch, and the
        # contrastive loss would push each away from its own image. In a round an image occurs once.
        # Order and batches follow from (seed, epoch, round), so a resume needs nothing else.
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
    """The pairs of tasks and buffer as one pool, or as two if the buffer has a share of its own.

    A key that is in several splits counts in the first only, so the buffer does not repeat pairs
    of a task. `limit` cuts each task and leaves the buffer whole.
    """
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
