"""The inputs and settings of one buffer update, and its identity when the command is rerun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vlcpctl.data.buffer_ctp import CTP, PAPER
from vlcpctl.data.buffer_policy import NEEDS_FEATURES
from vlcpctl.data.buffer_size import Size
from vlcpctl.data.task import Task

NAME = "buffer"  # a buffer's task name, and the key of its own section in the manifest


@dataclass(frozen=True, kw_only=True)
class Request:
    """The inputs and settings of one buffer update; `previous` is None for a new buffer."""

    task: Task
    previous: Task | None
    policy: str
    size: Size
    seed: int
    checkpoint: str | None = None  # content id of the model that computes the features
    variant: str = PAPER
    stores_features: bool = False

    def identity(self) -> dict[str, Any]:
        """The settings that determine the result, compared when the command runs again."""
        identity = {
            "task": self.task.content,
            "previous": self.previous and self.previous.content,
            "policy": self.policy,
            "variant": self.variant,
            "size": self.size.written,
            "of": self.size.of,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
        }
        return {**identity, "features": True} if self.stores_features else identity

    def ranks_by(self) -> str:
        """The index column with the items' priority; the highest value is evicted first."""
        by_rank = self.policy in NEEDS_FEATURES or self.variant == CTP
        return "rank" if by_rank else "order"

    def held(self) -> dict[str, Any]:
        """The buffer section of the previous buffer's manifest; without one, of an empty buffer."""
        if self.previous is None:
            return {"seen": {}, "shard_rows": {}}
        held: dict[str, Any] = self.previous.manifest[NAME]
        return held
