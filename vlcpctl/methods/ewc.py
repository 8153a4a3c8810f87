"""EWC: elastic weight consolidation (Kirkpatrick et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vlcpctl import losses
from vlcpctl.core.method import TRAIN, Paper, Phase, Run, Slot, hyper
from vlcpctl.methods.bases.weight_penalty import (
    IMPORTANCE,
    TASKS,
    Penalty,
    WeightPenalty,
    accumulate,
    importance,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Ewc(WeightPenalty):
    """Penalise each weight's squared distance from the previous model by its Fisher information.

    The Fisher diagonal of a task is the mean of the squared gradients over its batches. There is
    one penalty, towards the previous model, with the sum over earlier tasks (online EWC).
    """

    name: ClassVar[str] = "ewc"
    title: ClassVar[str] = (
        "Elastic weight consolidation: penalise changes to weights with high Fisher information"
    )
    note: ClassVar[str] = (
        "the Fisher information is computed per batch, not per pair: the loss couples pairs"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Overcoming catastrophic forgetting in neural networks",
            authors="James Kirkpatrick, Razvan Pascanu, Neil Rabinowitz, Joel Veness, Guillaume "
            "Desjardins, Andrei A. Rusu, Kieran Milan, John Quan, Tiago Ramalho, Agnieszka "
            "Grabska-Barwinska, Demis Hassabis, Claudia Clopath, Dharshan Kumaran and Raia "
            "Hadsell",
            venue="PNAS",
            year=2017,
            url="https://arxiv.org/abs/1612.00796",
        ),
        Paper(
            title="Progress and Compress: A scalable framework for continual learning",
            authors="Jonathan Schwarz, Jelena Luketina, Wojciech M. Czarnecki, Agnieszka "
            "Grabska-Barwinska, Yee Whye Teh, Razvan Pascanu and Raia Hadsell",
            venue="ICML",
            year=2018,
            url="https://arxiv.org/abs/1805.06370",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        5000.0,
        doc="lambda: weight of the penalty.",
        origin="CTP authors' code",
        depends="the batch size: the Fisher diagonal squares the gradient of a batch's mean loss, "
        "which shrinks as the batch grows; 5000 is for 512 pairs",
    )
    variant: str = hyper(
        "paper",
        doc="Fisher diagonals summed over tasks (paper), or averaged (ctp).",
        origin="online EWC, Schwarz et al., section 3; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The sum of lambda / 2 * F * (weight - previous)^2 (EWC, eq. 3)."""
        return (Penalty(importances=("fisher",), strength=self.strength / 2),)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The Fisher diagonal, and how many tasks it was measured on."""
        return (importance("fisher"), TASKS)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Train, then a pass over the task for its Fisher diagonal."""
        return (TRAIN, IMPORTANCE)

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """After training, add each batch's squared gradient to the Fisher diagonal."""
        if run.phase == IMPORTANCE.name:
            squares = losses.importance.add_squares_
            accumulate(run, "fisher", grads, squares, averages_tasks=self.variant == "ctp")
