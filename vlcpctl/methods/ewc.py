"""EWC: elastic weight consolidation (Kirkpatrick et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Paper
from vlcpctl.methods.bases.fisher import VARIANT, Fisher


@dataclass(frozen=True, kw_only=True)
class Ewc(Fisher):
    """One anchor, the previous model; Fisher diagonals of the tasks add up (online EWC)."""

    name: ClassVar[str] = "ewc"
    title: ClassVar[str] = (
        "Elastic weight consolidation: penalise changes to weights with high Fisher information"
    )
    note: ClassVar[str] = (
        "the Fisher information is computed per batch, not per pair (the loss couples pairs), so "
        "the best strength depends on the batch size"
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
        doc=VARIANT,
        origin="online EWC, Schwarz et al., section 3; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )
