"""What EWC, MAS and RWalk share: importances measured in a pass over the learned task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vlcpctl import core
from vlcpctl.core.method import Phase, Run, Slot, Weights

if TYPE_CHECKING:
    from torch import Tensor

IMPORTANCE = Phase(name="importance", epochs=1, trains=False)

# How many tasks the importances are of, so that they can be averaged.
TASKS = Slot(name="tasks", lifetime="stream", start=lambda _: {"count": core.params.zero_count()})

# Adds a share of what a batch's gradients say to an importance.
Add = Callable[[Weights, Mapping[str, "Tensor"], float], None]


def measure(
    run: Run, name: str, grads: Mapping[str, Tensor], add: Add, *, averages: bool = False
) -> None:
    """Add a batch to an importance: the mean over a task's batches, summed over tasks.

    With `averages` it is the mean over tasks instead, each counting the same.
    """
    importance, count = run.slot(name), run.slot(TASKS.name)["count"]
    tasks = int(count)
    if averages and run.step == 0:
        core.params.blend_(importance, tasks / (tasks + 1))
    share = 1 / (tasks + 1) if averages else 1.0
    add(importance, grads, share / run.steps)
    if run.step + 1 == run.steps:
        count.add_(1)
