"""What one update of a buffer is made of, and what decides its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vlcpctl.data.buffer_ctp import CTP, PAPER
from vlcpctl.data.buffer_policy import NEEDS_FEATURES
from vlcpctl.data.buffer_size import Size
from vlcpctl.data.task import Task

NAME = "buffer"  # of every buffer, and of what its manifest says beside a task's


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one update is made of."""

    task: Task
    previous: Task | None
    policy: str
    size: Size
    seed: int
    checkpoint: str | None = None  # content id of the model that features come from
    variant: str = PAPER
    stores_features: bool = False

    def identity(self) -> dict[str, Any]:
        """The settings that decide what the buffer holds."""
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
        """The column of the index that says in which order held items are given up."""
        by_rank = self.policy in NEEDS_FEATURES or self.variant == CTP
        return "rank" if by_rank else "order"

    def held(self) -> dict[str, Any]:
        """What the previous buffer says of itself; the same fields of an empty one without it."""
        if self.previous is None:
            return {"seen": {}, "shard_rows": {}}
        held: dict[str, Any] = self.previous.manifest[NAME]
        return held
