"""The battery of vlcpctl.testing."""

from __future__ import annotations

from vlcpctl.testing.battery import (
    BATCH,
    FLAGS,
    IMAGES,
    TASKS,
    WIDTH,
    TrainingWorld,
    checkpoint_bytes,
    in_child,
    in_one_interpreter,
    kill_at,
    make_world,
    request,
    stored_projections,
    with_fusion_model,
)

__all__ = [
    "BATCH",
    "FLAGS",
    "IMAGES",
    "TASKS",
    "WIDTH",
    "TrainingWorld",
    "checkpoint_bytes",
    "in_child",
    "in_one_interpreter",
    "kill_at",
    "make_world",
    "request",
    "stored_projections",
    "with_fusion_model",
]
