"""MAS: memory aware synapses (Aljundi et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms, Tokens
from vlcpctl.core.method import TRAIN, Paper, Part, Phase, Run, Slot, hyper
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
class Mas(WeightPenalty):
    """Penalise each weight's squared distance from the previous model by its effect on features.

    The importance is the absolute gradient of the length of the projections, so no loss is needed.
    """

    name: ClassVar[str] = "mas"
    title: ClassVar[str] = (
        "Memory aware synapses: penalise changes to weights the projections are sensitive to"
    )
    note: ClassVar[str] = "importances use a batch's mean projection length, not each pair's"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Memory Aware Synapses: Learning what (not) to forget",
            authors="Rahaf Aljundi, Francesca Babiloni, Mohamed Elhoseiny, Marcus Rohrbach and "
            "Tinne Tuytelaars",
            venue="ECCV",
            year=2018,
            url="https://arxiv.org/abs/1711.09601",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        1.0,
        doc="lambda: weight of the penalty.",
        origin="CTP authors' code",
        depends="the lengths of the projections, and the batch size: importances are gradients of "
        "a batch's mean length, in which pairs cancel out",
    )
    variant: str = hyper(
        "paper",
        doc="Importance from squared lengths, summed over tasks (paper); or from lengths, averaged "
        "over tasks, with half the penalty (ctp).",
        origin="MAS, sections 4.1-4.2; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The sum of lambda * omega * (weight - previous)^2 (MAS, section 4.2); ctp halves it."""
        strength = self.strength / 2 if self.variant == "ctp" else self.strength
        return (Penalty(importances=("omega",), strength=strength),)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """Omega, and how many tasks it was measured on."""
        return (importance("omega"), TASKS)

    def phases(self, *, first: bool) -> tuple[Phase, ...]:
        """Train, then a pass over the task for its importance, without the contrastive loss."""
        return (TRAIN, replace(IMPORTANCE, contrasts=False))

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The penalty or, after training, the batch's mean projection length, to differentiate."""
        if run.phase != IMPORTANCE.name:
            return self.penalty_terms(run), {}
        squared = self.variant == "paper"
        lengths = [
            losses.importance.lengths(side, squared=squared).mean()
            for side in (out.raw_image, out.raw_text)
        ]
        return {"length": lengths[0] + lengths[1]}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """After training, the mean length of a fusion model's fused features too."""
        if run.phase != IMPORTANCE.name:
            return {}
        length = losses.importance.lengths(out.fused, squared=self.variant == "paper").sum()
        return {"fused_length": length / part.pairs}

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """After training, add the absolute gradient of each batch's mean length to omega."""
        if run.phase == IMPORTANCE.name:
            sizes = losses.importance.add_sizes_
            accumulate(run, "omega", grads, sizes, averages_tasks=self.variant == "ctp")
