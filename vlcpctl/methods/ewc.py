"""EWC: elastic weight consolidation (Kirkpatrick et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vlcpctl import losses
from vlcpctl.core.method import Paper, Weights, hyper
from vlcpctl.methods.bases.measured import Measured

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Ewc(Measured):
    """One anchor, the previous model; Fisher diagonals of the tasks add up (online EWC)."""

    name: ClassVar[str] = "ewc"
    title: ClassVar[str] = "Elastic weight consolidation: hold the weights that Fisher finds stiff"
    note: ClassVar[str] = (
        "Fisher is of whole batches, since the loss couples their pairs: "
        "a strength fits one batch size"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Overcoming catastrophic forgetting in neural networks",
            authors="Kirkpatrick, Pascanu, Rabinowitz, Veness, Desjardins, Rusu, Milan, Quan, "
            "Ramalho, Grabska-Barwinska, Hassabis, Clopath, Kumaran and Hadsell",
            venue="PNAS",
            year=2017,
            url="https://arxiv.org/abs/1612.00796",
        ),
        Paper(
            title="Progress and Compress: A scalable framework for continual learning",
            authors="Schwarz, Luketina, Czarnecki, Grabska-Barwinska, Teh, Pascanu and Hadsell",
            venue="ICML",
            year=2018,
            url="https://arxiv.org/abs/1805.06370",
        ),
    )

    strength: float = hyper(
        5000.0, doc="lambda: weight of the penalty.", origin="CTP authors' code"
    )
    variant: str = hyper(
        "paper",
        doc="Fisher summed over tasks, or their mean (the CTP authors).",
        origin="online EWC, Schwarz et al., section 3; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def importances(self) -> tuple[str, ...]:
        """The Fisher diagonal alone."""
        return ("fisher",)

    @property
    def weight(self) -> float:
        """Half the strength, as the paper's eq. 3 has it."""
        return self.strength / 2

    def add(self, importance: Weights, grads: Mapping[str, Tensor], share: float) -> None:
        """The squares of a batch's gradients."""
        losses.importance.add_squares_(importance, grads, share)
