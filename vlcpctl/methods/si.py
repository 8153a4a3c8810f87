"""SI: synaptic intelligence (Zenke et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Paper, Run, Slot
from vlcpctl.methods.bases.anchored import Anchored
from vlcpctl.methods.bases.path import path_slots, remember, start_of, walk

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Si(Anchored):
    """Importance is what each weight's way through the task took off the loss, per distance.

    The way is that of the whole task, also where the best weights on the way are kept.
    """

    name: ClassVar[str] = "si"
    title: ClassVar[str] = (
        "Synaptic intelligence: penalise changes to weights whose updates reduced the loss"
    )
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Continual Learning Through Synaptic Intelligence",
            authors="Zenke, Poole and Ganguli",
            venue="ICML",
            year=2017,
            url="https://arxiv.org/abs/1703.04200",
        ),
    )

    strength: float = hyper(1.0, doc="c: weight of the penalty.", origin="CTP authors' code")
    damping: float = hyper(
        0.1,
        doc="xi: damping, added to each weight's squared distance.",
        origin="CTP authors' code; SI, eq. 5",
        within="(0, inf)",
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
    def importances(self) -> tuple[str, ...]:
        """Omega alone."""
        return ("omega",)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """Omega, and the path of this task."""
        return (*super().slots(first=first), *path_slots(first=first))

    def after_backward(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Keep the loss's own gradient."""
        remember(run, grads)

    def after_step(self, run: Run, batch: Batch, aux: dict[str, Any], *, stepped: bool) -> None:
        """Go on with the path; at the end of the task turn it into importance (eq. 5)."""
        if stepped:
            walk(run)
        if run.step + 1 == run.steps:
            self._consolidate(run)

    def _consolidate(self, run: Run) -> None:
        gained = losses.importance.per_distance(
            run.slot("path"), start_of(run), run.weights, self.damping
        )
        omega = run.slot("omega")
        for name, value in gained.items():
            clamps = self.variant == "paper" and self.clamp_omega
            omega[name].add_(value.clamp_min(0) if clamps else value)
