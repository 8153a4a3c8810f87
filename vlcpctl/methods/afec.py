"""AFEC: active forgetting with synaptic expansion-convergence (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.method import TRAIN, Paper, Phase, Run, Slot, hyper
from vlcpctl.methods.bases.weight_penalty import (
    IMPORTANCE,
    TASKS,
    Penalty,
    WeightPenalty,
    accumulate,
    importance,
    zeros,
)

if TYPE_CHECKING:
    from torch import Tensor

FORWARD = Phase(name="forward", each_epoch=True, weights="forward")
FORWARD_FISHER = Phase(name="forward-fisher", each_epoch=True, weights="forward", trains=False)


@dataclass(frozen=True, kw_only=True)
class Afec(WeightPenalty):
    """EWC, plus a second penalty towards a forward model that is trained without penalties.

    Before each epoch the forward model trains for one epoch, and its Fisher diagonal is measured.
    It is initialised with the previous model, and keeps its weights from epoch to epoch.
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
            authors="Liyuan Wang, Mingtian Zhang, Zhongfan Jia, Qian Li, Chenglong Bao, Kaisheng "
            "Ma, Jun Zhu and Yi Zhong",
            venue="NeurIPS",
            year=2021,
            url="https://arxiv.org/abs/2110.12187",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0", "forward_strength=0")

    strength: float = hyper(
        5000.0,
        doc="lambda: weight of the penalty towards the previous model.",
        origin="CTP authors' code",
        depends="the batch size: the Fisher diagonal squares the gradient of a batch's mean loss, "
        "which shrinks as the batch grows; 5000 is for 512 pairs",
    )
    forward_strength: float = hyper(
        1.0,
        doc="lambda_e: weight of the penalty towards the forward model.",
        origin="AFEC, table 5",
        depends="the batch size: the forward model's Fisher diagonal squares the gradient of a "
        "batch's mean loss; AFEC's batches are images with labels",
    )
    variant: str = hyper(
        "paper",
        doc="Fisher diagonals summed over tasks (paper), or averaged (ctp).",
        origin="AFEC, eq. 9; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """EWC's, and lambda_e / 2 * sum of F_forward * (weight - forward)^2 (AFEC, eq. 9)."""
        return (
            Penalty(importances=("fisher",), strength=self.strength / 2),
            Penalty(
                term="forward_penalty",
                importances=("forward_fisher",),
                strength=self.forward_strength / 2,
                target="forward",
            ),
        )

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """EWC's and, after the first task, the forward model with its own Fisher diagonal."""
        held = (importance("fisher"), TASKS)
        if first:
            return held
        forward = Slot(
            name="forward",
            lifetime="task",
            start=lambda run: core.params.copy_of(run.everything),
        )
        return (*held, forward, Slot(name="forward_fisher", lifetime="task", start=zeros))

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Forward model and its Fisher before each epoch; after training the task's Fisher."""
        alternating = () if first or not self.forward_strength else (FORWARD, FORWARD_FISHER)
        return (*alternating, TRAIN, IMPORTANCE)

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Measure squared gradients: the forward model's in each epoch, the task's at the end."""
        squares = losses.importance.add_squares_
        if run.phase == IMPORTANCE.name:
            accumulate(run, "fisher", grads, squares, averages_tasks=self.variant == "ctp")
        elif run.phase == FORWARD_FISHER.name:
            fisher = run.slot("forward_fisher")
            if run.step == 0:
                core.params.zero_(fisher)
            squares(fisher, grads, 1 / run.steps)
