"""What EWC, MAS and RWalk share: importances measured in a pass over the learned task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vlcpctl import core
from vlcpctl.core.method import TRAIN, Phase, Run, Slot, Weights
from vlcpctl.methods.bases.anchored import Anchored

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


@dataclass(frozen=True, kw_only=True)
class Measured(Anchored):
    """Holds weights by one importance, which a pass over each learned task adds to."""

    importance_pass: ClassVar[Phase] = IMPORTANCE

    @abstractmethod
    def add(self, importance: Weights, grads: Mapping[str, Tensor], share: float) -> None:
        """Add a share of what a batch's gradients say."""

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The importance, and how many tasks it is of."""
        return (*super().slots(first=first), TASKS)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Train, then one pass over the task for its importance."""
        return (TRAIN, self.importance_pass)

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Once trained, add what a batch says to the importance."""
        if run.phase == self.importance_pass.name:
            averages = self.variant == "ctp"
            measure(run, self.importances[0], grads, self.add, averages=averages)
