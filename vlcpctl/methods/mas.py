"""MAS: memory aware synapses (Aljundi et al., 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Features, Paper, Part, Phase, Run, Terms, Tokens, Weights
from vlcpctl.methods.bases.measured import IMPORTANCE, Measured

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Mas(Measured):
    """Importance is how much a weight changes the length of the projections; no loss is needed."""

    name: ClassVar[str] = "mas"
    title: ClassVar[str] = (
        "Memory aware synapses: penalise changes to weights the projections are sensitive to"
    )
    note: ClassVar[str] = "importances use a batch's mean projection length, not each pair's"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Memory Aware Synapses: Learning what (not) to forget",
            authors="Aljundi, Babiloni, Elhoseiny, Rohrbach and Tuytelaars",
            venue="ECCV",
            year=2018,
            url="https://arxiv.org/abs/1711.09601",
        ),
    )

    importance_pass: ClassVar[Phase] = dataclasses.replace(IMPORTANCE, contrasts=False)

    strength: float = hyper(1.0, doc="lambda: weight of the penalty.", origin="CTP authors' code")
    variant: str = hyper(
        "paper",
        doc="Importance from squared lengths, summed over tasks (paper); or from lengths, averaged "
        "over tasks, with half the penalty (ctp).",
        origin="MAS, sections 4.1-4.2; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def importances(self) -> tuple[str, ...]:
        """Omega alone."""
        return ("omega",)

    @property
    def weight(self) -> float:
        """The strength; half of it in the CTP authors' code."""
        return self.strength / 2 if self.variant == "ctp" else self.strength

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The penalty or, once trained, the mean length of the batch's projections."""
        if run.phase != IMPORTANCE.name:
            return super().loss(run, batch, out)
        squared = self.variant == "paper"
        lengths = [
            losses.importance.lengths(side, squared=squared).mean()
            for side in (out.raw_image, out.raw_text)
        ]
        return {"length": lengths[0] + lengths[1]}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Once trained, the mean length of a fusion model's fused feature too."""
        if run.phase != IMPORTANCE.name:
            return {}
        length = losses.importance.lengths(out.fused, squared=self.variant == "paper").sum()
        return {"fused_length": length / part.pairs}

    def add(self, importance: Weights, grads: Mapping[str, Tensor], share: float) -> None:
        """The sizes of a batch's gradients."""
        losses.importance.add_sizes_(importance, grads, share)
