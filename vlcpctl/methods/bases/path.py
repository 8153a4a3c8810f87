"""What SI and RWalk share: following the weights through a task, one forward pass a step.

The gradient is the loss's own, before penalties and clipping; the way is the optimizer's, with its
momentum and weight decay. A step that fp16 skips leads nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vlcpctl import core, losses
from vlcpctl.core.method import Run, Slot, Weights
from vlcpctl.methods.bases.anchored import zeros

if TYPE_CHECKING:
    from torch import Tensor


def path_slots(*, first: bool) -> tuple[Slot, ...]:
    """The path, what a step needs for it and, without a previous model, where the task began."""
    path = Slot(name="path", lifetime="task", start=zeros)
    gradient = Slot(name="gradient", lifetime="task", start=zeros)
    before = Slot(name="before", lifetime="task", start=trained_copy)
    start = Slot(name="start", lifetime="task", start=trained_copy)
    return (path, gradient, before, start) if first else (path, gradient, before)


def remember(run: Run, grads: Mapping[str, Tensor]) -> None:
    """Keep the loss's gradient, and the weights as they are before the step."""
    core.params.copy_(run.slot("gradient"), grads)
    core.params.copy_(run.slot("before"), run.weights)


def walk(run: Run) -> None:
    """Add the step from the weights kept to those of now."""
    losses.importance.add_path_(
        run.slot("path"), run.slot("gradient"), run.slot("before"), run.weights
    )


def start_of(run: Run) -> Weights:
    """The weights that the task began with."""
    return run.slot("start") if run.first else run.anchor


def trained_copy(run: Run) -> Weights:
    """The start of a slot that follows the weights."""
    return core.params.copy_of(core.params.trained(run.weights))
