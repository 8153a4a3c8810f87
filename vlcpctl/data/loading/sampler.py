"""Which pairs make up each batch: of the training data, and of the buffer beside it.

A batch is a pure function of the settings and its number. Nothing is drawn from a random
stream whose state would have to be saved: to resume at any step, the step is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from vlcpctl.core.errors import UsageError
from vlcpctl.data.loading.order import BatchPlan, Order
from vlcpctl.data.loading.replay import Replay, replayed_pairs
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.ids import integer_hash

MEMORY = "memory"


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


@dataclass(eq=False)
class PairSampler:
    """The training pairs of a run, batch by batch.

    Pairs that do not fill the last batch of an epoch are left out: a contrastive loss depends on
    the batch size. Raises UsageError if a batch is larger than the data.
    """

    tasks: Sequence[Split]
    buffer: Split | None
    _: KW_ONLY
    batch_size: int
    captions: str  # one of each pair, or all, each a pair
    replay: Replay
    seed: int
    limit: int | None = None

    def __post_init__(self) -> None:
        self.splits = [*self.tasks, *([self.buffer] if self.buffer else [])]
        pools, share = _pools(self.tasks, self.buffer, self.replay, limit=self.limit)
        replayed = replayed_pairs(self.batch_size, share, len(pools[1]) if len(pools) > 1 else 0)
        self.replay_share = share  # None: shuffled with the tasks
        if replayed == self.batch_size:
            raise UsageError(
                f"--replay: {share:g} of a batch leaves no place for new pairs in "
                f"batches of {self.batch_size}; use a smaller share or a larger --batch-size"
            )
        rounds = self._rounds(pools[0], self.batch_size - replayed)
        self.rounds = [part for part in rounds if part.steps]
        self.replayed = Round(pools[1], replayed, None) if replayed else None
        self.buffer_source = len(self.tasks) if self.buffer else -1
        self.epoch_steps = sum(part.steps for part in self.rounds)
        self.epoch_pairs = sum(len(part.pool) for part in rounds)
        if not self.epoch_steps:
            raise UsageError(
                f"--batch-size {self.batch_size} is larger than the data "
                f"({len(pools[0])} pairs); use at most {len(pools[0])}"
            )

    def __len__(self) -> int:
        """The number of pairs that one epoch trains on, replayed ones included."""
        return self.epoch_steps * self.batch_size

    @property
    def left_out(self) -> int:
        """The number of pairs, of `epoch_pairs`, that fill no batch in an epoch."""
        return self.epoch_pairs - sum(part.steps * part.share for part in self.rounds)

    def visited_rows(self) -> list[np.ndarray]:
        """The rows of each split that an epoch visits, or the replay beside it, (n,) each."""
        parts = [*self.rounds, *([self.replayed] if self.replayed else [])]
        return [
            np.unique(np.concatenate([p.pool.row[p.pool.source == source] for p in parts]))
            for source in range(len(self.splits))
        ]

    def may_repeat(self, first: int, stop: int) -> bool:
        """Whether a row may be in more than one of the batches first..stop-1."""
        is_one_epoch = first // self.epoch_steps == (stop - 1) // self.epoch_steps
        return not is_one_epoch or len(self.rounds) > 1 or self.replayed is not None

    def plan(self, step: int) -> BatchPlan:
        """The batch of a step, counted from the first epoch of training; each array is (B,)."""
        epoch, step_in_epoch = divmod(step, self.epoch_steps)
        for part in self.rounds:
            if step_in_epoch < part.steps:
                break
            step_in_epoch -= part.steps
        picked = self._pick(part, epoch, step_in_epoch)
        if self.replayed:
            # The buffer counts its own epochs: it is much smaller than the task's data, and is
            # shuffled again whenever all of it was replayed.
            replayed = self._pick(self.replayed, *divmod(step, self.replayed.steps))
            picked = tuple(np.concatenate(pair) for pair in zip(picked, replayed, strict=True))
        source, row, caption, visit = picked
        return BatchPlan(source=source, row=row, caption=caption, visit=visit)

    def _pick(self, part: Round, epoch: int, step: int) -> tuple[np.ndarray, ...]:
        order = self._orders.setdefault(part.label, Order(len(part.pool), self.seed, part.label))
        picked = order.rows(epoch, step * part.share, (step + 1) * part.share)
        source, row = (of[picked].astype(np.int64) for of in (part.pool.source, part.pool.row))
        pairs = zip(source.tolist(), row.tolist(), strict=True)
        caption = np.array([self._caption(part, epoch, *pair) for pair in pairs])
        return source, row, caption, np.full(len(row), epoch)

    @cached_property
    def _orders(self) -> dict[str, Order]:
        return {}

    def _caption(self, part: Round, epoch: int, source: int, row: int) -> int:
        if part.caption is not None:
            return part.caption
        count = self.splits[source].caption_count(row)
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
        if self.captions == "one":
            return [Round(pool, share, None)]
        counts = np.empty(len(pool), dtype=np.int32)
        for source, split in enumerate(self.splits):
            here = pool.source == source
            counts[here] = split.caption_counts(pool.row[here])
        return [
            Round(
                Pool(pool.name, pool.source[counts > number], pool.row[counts > number]),
                share,
                number,
            )
            for number in range(int(counts.max(initial=0)))
        ]


def count_pairs(
    tasks: Sequence[Split], buffer: Split | None, replay: Replay, limit: int | None
) -> tuple[int, int, float | None]:
    """The number of pairs to train on, that of the buffer's pairs beside them, and their share.

    If the buffer is shuffled with the tasks, its pairs count among those to train on.
    """
    pools, share = _pools(tasks, buffer, replay, limit=limit)
    return len(pools[0]), len(pools[1]) if len(pools) > 1 else 0, share


def _pools(
    tasks: Sequence[Split], buffer: Split | None, replay: Replay, *, limit: int | None
) -> tuple[list[Pool], float | None]:
    """The pairs of tasks and buffer as one pool, or as two and the share of the second.

    A key that is in several splits counts in the first only, so the buffer does not repeat pairs
    of a task. `limit` cuts each task and leaves the buffer whole.
    """
    pools = []
    splits = [*tasks, *([buffer] if buffer else [])]
    for source, split in enumerate(splits):
        is_new = np.ones(len(split), dtype=bool)
        for earlier in splits[:source]:
            is_new &= ~split.keys.among(earlier.keys)
        # Small types: these are all that training holds in memory of each row.
        rows = np.flatnonzero(is_new).astype(np.int32)
        rows = rows[:limit] if source < len(tasks) else rows
        name = "replay" if source == len(tasks) else "pairs"
        pools.append(Pool(name, np.full(len(rows), source, np.int16), rows))
    new, beside = pools[: len(tasks)], pools[len(tasks) :]
    share = replay.share_of(*(sum(map(len, part)) for part in (new, beside))) if beside else None
    if share is None:
        return [_merged(pools)], None
    return [_merged(new), *beside], share


def _merged(pools: Sequence[Pool]) -> Pool:
    return Pool(
        "pairs",
        np.concatenate([pool.source for pool in pools]),
        np.concatenate([pool.row for pool in pools]),
    )


@dataclass(frozen=True)
class BufferSampler:
    """The buffer, or other pairs, in mini-batches of `size`, with one caption drawn for each.

    `name` tells its draws from those of others. Every epoch over the pairs is shuffled
    again. Pairs that do not fill its last mini-batch are left out, as in training.
    """

    buffer: Split
    size: int
    seed: int
    name: str = MEMORY

    def plan(self, number: int) -> BatchPlan:
        """The mini-batch number `number`, from 0 without end; each array is (size,)."""
        epoch, step_in_epoch = divmod(number, len(self.buffer) // self.size)
        row = self._order.rows(epoch, step_in_epoch * self.size, (step_in_epoch + 1) * self.size)
        caption = np.array([self._caption(epoch, place) for place in row.tolist()])
        return BatchPlan(
            source=np.zeros(self.size, dtype=np.int64),
            row=row,
            caption=caption,
            visit=np.full(self.size, epoch),
        )

    @cached_property
    def _order(self) -> Order:
        return Order(len(self.buffer), self.seed, self.name)

    def _caption(self, epoch: int, row: int) -> int:
        # By key and not by row: a pair keeps its draw if the buffer is stored in another order.
        draw = integer_hash(self.seed, self.name, "caption", epoch, self.buffer.keys[row])
        return draw % self.buffer.caption_count(row)
