"""Shared by EWC, MAS, SI, RWalk and AFEC: quadratic penalties on changes to the weights.

Each method declares its penalties and measures their importances in its own file: in a pass over
the learned task (`accumulate`) or along the path of its training steps (`path_slots`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, Terms, Weights
from vlcpctl.core.method import TRAIN, Method, Needs, Phase, Run, Slot

if TYPE_CHECKING:
    from torch import Tensor

# A pass over the learned task, after training, that measures gradients.
IMPORTANCE = Phase(name="importance", epochs=1, trains=False)

# How many tasks an importance was measured on, for a mean over tasks.
TASKS = Slot(name="tasks", lifetime="stream", start=lambda _: {"count": core.params.zero_count()})


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The sum of strength * importance * (weight - target)^2 over all weights.

    Several importances add up. Without a `target` slot the target is the previous model.
    """

    importances: tuple[str, ...]  # slots
    strength: float
    target: str = ""  # a slot
    term: str = "penalty"  # its name among the loss terms

    def value(self, run: Run) -> Tensor:
        """The penalty, a scalar without gradient."""
        parts = [
            losses.penalty.quadratic(run.slot(name), run.weights, self._target(run))
            for name in self.importances
        ]
        return self.strength * sum(parts[1:], parts[0])

    def add_gradient(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add the gradient of the penalty in place, for the weights that the loss reaches."""
        for name in self.importances:
            losses.penalty.add_gradient_(
                grads, run.slot(name), run.weights, self._target(run), strength=self.strength
            )

    def _target(self, run: Run) -> Weights:
        return run.slot(self.target) if self.target else run.anchor


@dataclass(frozen=True, kw_only=True)
class WeightPenalty(Method):
    """Penalise changes to important weights while training on later tasks.

    The gradient of the penalties is added in closed form, after that of the loss. So it needs no
    graph and no fp16 scaling, and importances are measured on the gradient of the loss alone.
    """

    preset: ClassVar[str] = "ctp"
    measures: ClassVar[bool] = True

    strength: float
    variant: str

    @property
    @abstractmethod
    def penalties(self) -> tuple[Penalty, ...]:
        """The penalties of every task after the first; those of strength 0 are left out."""

    def needs(self, *, first: bool) -> Needs:
        """After the first task: the previous model's weights."""
        return Needs(previous_weights=not first)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The values of the penalties, without gradient."""
        return self.penalty_terms(run), {}

    def add_gradients(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add the gradients of the penalties."""
        for penalty in self._active(run):
            penalty.add_gradient(run, grads)

    def penalty_terms(self, run: Run) -> Terms:
        """The value of each penalty by the name of its term."""
        return {penalty.term: penalty.value(run) for penalty in self._active(run)}

    def _active(self, run: Run) -> tuple[Penalty, ...]:
        if run.phase != TRAIN.name or run.first:
            return ()
        return tuple(penalty for penalty in self.penalties if penalty.strength)


def importance(name: str) -> Slot:
    """A slot for an importance: zeros, handed on from task to task."""
    return Slot(name=name, lifetime="stream", start=zeros)


def accumulate(
    run: Run,
    name: str,
    grads: Mapping[str, Tensor],
    add_: Callable[[Weights, Mapping[str, Tensor], float], None],
    *,
    averages_tasks: bool,
) -> None:
    """Add a batch of the measuring pass to an importance: the mean over the batches of a task.

    `add_(importance, grads, share)` adds a share of a batch. Tasks are summed, or averaged with
    equal weights. The slot `TASKS` counts them.
    """
    target, count = run.slot(name), run.slot(TASKS.name)["count"]
    share = 1.0
    if averages_tasks:
        tasks = int(count)
        share = 1 / (tasks + 1)
        if run.step == 0:
            core.params.blend_(target, tasks / (tasks + 1))
    add_(target, grads, share / run.steps)
    if run.step + 1 == run.steps:
        count.add_(1)


def path_slots(*, first: bool) -> tuple[Slot, ...]:
    """What a path integral needs: itself, and the gradient and weights before each step.

    In the first task also the weights at its start; later they are those of the previous model.
    """
    path = Slot(name="path", lifetime="task", start=zeros)
    gradient = Slot(name="gradient", lifetime="task", start=zeros)
    before = Slot(name="before", lifetime="task", start=trained_copy)
    start = Slot(name="start", lifetime="task", start=trained_copy)
    return (path, gradient, before, start) if first else (path, gradient, before)


def task_start(run: Run) -> Weights:
    """The weights at the start of the task."""
    return run.slot("start") if run.first else run.anchor


def zeros(run: Run) -> Weights:
    """A zero for every element of every weight that trains."""
    return core.params.zeros_of(run.weights)


def trained_copy(run: Run) -> Weights:
    """A copy of the weights that train."""
    return core.params.copy_of(core.params.trainable(run.weights))
