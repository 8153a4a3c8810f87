"""AFEC: active forgetting with synaptic expansion-convergence (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import TRAIN, Batch, Features, Paper, Phase, Run, Slot, Terms
from vlcpctl.methods.bases.anchored import zeros
from vlcpctl.methods.bases.fisher import VARIANT, Fisher
from vlcpctl.methods.bases.measured import IMPORTANCE

if TYPE_CHECKING:
    from torch import Tensor

FORWARD = Phase(name="forward", each_epoch=True, weights="forward")
FORWARD_FISHER = Phase(name="forward-fisher", each_epoch=True, weights="forward", trains=False)


@dataclass(frozen=True, kw_only=True)
class Afec(Fisher):
    """EWC, and a second pull: to a forward model that learns the task without any penalty.

    Before each epoch the forward model trains for one and its Fisher diagonal is measured; its
    weights go on from epoch to epoch.
    """

    name: ClassVar[str] = "afec"
    title: ClassVar[str] = (
        "Active forgetting: EWC, plus a pull towards a model trained without the penalty"
    )
    note: ClassVar[str] = (
        "each epoch costs three: for the forward model, its Fisher diagonal, and the model"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="AFEC: Active Forgetting of Negative Transfer in Continual Learning",
            authors="Wang, Zhang, Jia, Li, Bao, Ma, Zhu and Zhong",
            venue="NeurIPS",
            year=2021,
            url="https://arxiv.org/abs/2110.12187",
        ),
    )

    strength: float = hyper(
        5000.0,
        doc="lambda: weight of the penalty towards the previous model.",
        origin="CTP authors' code",
    )
    forward_strength: float = hyper(
        1.0,
        doc="lambda_e: weight of the penalty towards the forward model.",
        origin="AFEC, table 5",
    )
    variant: str = hyper(
        "paper",
        doc=VARIANT,
        origin="AFEC, eq. 9; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """EWC's, and after the first task the forward model with its own Fisher diagonal."""
        if first:
            return super().slots(first=first)
        forward = Slot(
            name="forward",
            lifetime="task",
            start=lambda run: core.params.copy_of(run.everything),
        )
        fisher = Slot(name="forward_fisher", lifetime="task", start=zeros)
        return (*super().slots(first=first), forward, fisher)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Forward model and its Fisher before each epoch; after training the task's Fisher."""
        alternating = () if first or not self.forward_strength else (FORWARD, FORWARD_FISHER)
        return (*alternating, TRAIN, IMPORTANCE)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The values of both penalties, without gradient."""
        terms, aux = super().loss(run, batch, out)
        if self._follows(run):
            held = losses.penalty.quadratic(
                run.slot("forward_fisher"), run.weights, run.slot("forward")
            )
            terms["forward_penalty"] = self.forward_strength / 2 * held
        return terms, aux

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Measure: the forward model's Fisher anew in each epoch, the task's at the end."""
        super().after_backward(run, grads)
        if run.phase != FORWARD_FISHER.name:
            return
        fisher = run.slot("forward_fisher")
        if run.step == 0:
            core.params.zero_(fisher)
        losses.importance.add_squares_(fisher, grads, 1 / run.steps)

    def add_gradients(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add the gradients of both penalties."""
        super().add_gradients(run, grads)
        if self._follows(run):
            losses.penalty.add_gradient_(
                grads,
                run.slot("forward_fisher"),
                run.weights,
                run.slot("forward"),
                strength=self.forward_strength / 2,
            )

    def _follows(self, run: Run) -> bool:
        return run.phase == TRAIN.name and not run.first and self.forward_strength != 0
