"""The request that makes a buffer, and what may not be intended about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.errors import some_names
from vlcpctl.data.buffer.policies import CTP, NEEDS_FEATURES, PAPER, BufferSize
from vlcpctl.data.tasks.task import Task, stream_entries


@dataclass(frozen=True, kw_only=True)
class BufferRequest:
    """The inputs and settings of one buffer update; `previous` is None for a new buffer."""

    task: Task
    previous: Task | None
    policy: str
    size: BufferSize
    seed: int
    checkpoint: str | None = None  # content id of the model that computes the features
    variant: str = PAPER
    stores_features: bool = False
    candidates: int | None = None  # that herding and kmeans choose from; None: `most_considered`

    def identity(self) -> dict[str, Any]:
        """The settings that determine the result, compared when the command runs again."""
        return {
            "task": self.task.content,
            "previous": self.previous and self.previous.content,
            "policy": self.policy,
            "variant": self.variant,
            "size": self.size.text,
            "of": self.size.of,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            # Content ids do not cover kept columns, so they are compared by themselves.
            "kept_columns": self.kept_columns(),
            "features": self.stores_features,
            **({} if self.candidates is None else {"candidates": self.candidates}),
        }

    def kept_columns(self) -> list[str]:
        """The columns that the buffer keeps: those of the previous one, and more of the task."""
        earlier = [] if self.previous is None else self.previous.kept_columns
        return list(dict.fromkeys([*earlier, *self.task.kept_columns]))

    def ranks_by(self) -> str:
        """The index column with the items' priority; the highest value is evicted first."""
        by_rank = self.policy in NEEDS_FEATURES or self.variant == CTP
        return "rank" if by_rank else "order"

    def seen(self) -> dict[str, int]:
        """The number of images of each task that the previous buffer has seen, by content id."""
        return {} if self.previous is None else self.previous.buffer.seen

    def shard_rows(self) -> dict[str, int]:
        """The number of samples in each tar of the previous buffer."""
        return {} if self.previous is None else self.previous.buffer.shard_rows


def update_warnings(request: BufferRequest) -> Iterator[str]:
    """One line for everything about --previous that may not be intended."""
    previous, task = request.previous, request.task
    if previous is None:
        return
    held, size = previous.buffer, request.size
    grows = (size.count or 0) > (held.count or 0) or (size.share or 0) > (held.share or 0)
    images = sum(held.seen.values())
    # A buffer with room for all images may have fewer because it was rewritten.
    has_evicted = not (previous.manifest.is_rewritten and (held.count or 0) >= images)
    if grows and previous.counts["train"] < images and has_evicted:
        yield (
            f"{previous.path} was smaller: the items of earlier tasks that it evicted are not "
            "restored"
        )
    step = task.step or 0
    same_stream = previous.manifest.stream == task.manifest.stream
    entries = stream_entries(task)
    skipped = [name for name, ids in entries[:step] if set(ids).isdisjoint(held.seen)]
    later = [name for name, ids in entries[step + 1 :] if not set(ids).isdisjoint(held.seen)]
    if skipped:
        what = "was not updated with" if same_stream else "is of another stream and lacks"
        yield f"--previous {what} {some_names(skipped)}, earlier in the stream than {task.slug}"
    if later:
        yield f"--previous contains pairs of {some_names(later)}, later in the stream"
