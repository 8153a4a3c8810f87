"""SI: synaptic intelligence (Zenke et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch
from vlcpctl.core.method import Paper, Run, Slot, hyper
from vlcpctl.methods.bases.weight_penalty import (
    Penalty,
    WeightPenalty,
    importance,
    path_slots,
    task_start,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Si(WeightPenalty):
    """Penalise each weight's squared distance from the previous model by its share in learning.

    The importance is how much the weight's updates reduced the loss, per squared distance moved.
    It covers all steps of the task, also with `--keep best`, which keeps the weights of an earlier
    one.
    """

    name: ClassVar[str] = "si"
    title: ClassVar[str] = (
        "Synaptic intelligence: penalise changes to weights whose updates reduced the loss"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Continual Learning Through Synaptic Intelligence",
            authors="Friedemann Zenke, Ben Poole and Surya Ganguli",
            venue="ICML",
            year=2017,
            url="https://arxiv.org/abs/1703.04200",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        1.0,
        doc="c: weight of the penalty.",
        origin="CTP authors' code",
        depends="the learning rate and the number of steps: importances are the sum of gradient "
        "times change over the path, divided by its squared length plus the damping",
    )
    damping: float = hyper(
        0.1,
        doc="xi: damping, added to each weight's squared distance.",
        origin="CTP authors' code; SI, eq. 5",
        within="(0, inf)",
        depends="the learning rate and the number of steps: where weights move far less than its "
        "square root in a task, it scales all importances down alike",
    )
    clamp_omega: bool = hyper(
        True,
        doc="Clamp negative importances to 0 (variant=paper): momentum and weight decay can raise "
        "the loss, and a negative penalty rewards drift.",
        origin="ours",
    )
    variant: str = hyper(
        "paper",
        doc="Whether importances are clamped: 'ctp' never clamps. Both use the gradient of the "
        "training step itself; the CTP authors compute a second one.",
        origin="SI, eqs. 3-5; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The sum of c * omega * (weight - previous)^2 (SI, eq. 4)."""
        return (Penalty(importances=("omega",), strength=self.strength),)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """Omega, and the path integral of this task."""
        return (importance("omega"), *path_slots(first=first))

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Keep the gradient of the loss alone, and the weights before the step."""
        core.params.copy_(run.slot("gradient"), grads)
        core.params.copy_(run.slot("before"), run.weights)

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Add the step to the path integral (eq. 3); at the end of the task add it to omega.

        The change of the weights is the optimizer's, with momentum and weight decay. A step that
        fp16 skipped changes nothing and adds nothing.
        """
        if stepped:
            losses.importance.add_path_(
                run.slot("path"), run.slot("gradient"), run.slot("before"), run.weights
            )
        if run.step + 1 == run.steps:
            self._consolidate(run)

    def _consolidate(self, run: Run) -> None:
        """Add the task's importance to omega (eq. 5): path / (squared distance + xi)."""
        gained = losses.importance.per_distance(
            run.slot("path"), task_start(run), run.weights, self.damping
        )
        omega = run.slot("omega")
        for name, value in gained.items():
            clamps = self.variant == "paper" and self.clamp_omega
            omega[name].add_(value.clamp_min(0) if clamps else value)
