"""What EWC, MAS, SI and RWalk share: a quadratic penalty around the previous model.

Its gradient is added in closed form once the loss has been differentiated. So it needs no graph
and no scaling in fp16, and what follows the loss alone sees its gradient without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.method import TRAIN, Batch, Features, Method, Needs, Run, Slot, Terms, Weights

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Anchored(Method):
    """Holds each weight near its value in the previous model, the more the more it mattered."""

    preset: ClassVar[str] = "ctp"

    strength: float
    variant: str

    @property
    @abstractmethod
    def importances(self) -> tuple[str, ...]:
        """The slots that say how much a weight is held; they add up."""

    @property
    def weight(self) -> float:
        """What the weighted squares are multiplied with."""
        return self.strength

    def needs(self, *, first: bool) -> Needs:
        """Where the weights are held."""
        return Needs(previous_weights=not first)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The importances, handed from task to task."""
        return tuple(Slot(name=name, lifetime="stream", start=zeros) for name in self.importances)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The penalty's value, without gradient: `add_gradients` adds that."""
        if not self._holds(run):
            return {}, {}
        parts = [
            losses.penalty.quadratic(run.slot(name), run.weights, run.anchor)
            for name in self.importances
        ]
        return {"penalty": self.weight * sum(parts[1:], parts[0])}, {}

    def add_gradients(self, run: Run, grads: Mapping[str, Tensor]) -> None:
        """Add the gradient of the penalty."""
        if not self._holds(run):
            return
        for name in self.importances:
            losses.penalty.add_gradient_(
                grads, run.slot(name), run.weights, run.anchor, strength=self.weight
            )

    def _holds(self, run: Run) -> bool:
        return run.phase == TRAIN.name and not run.first and self.strength != 0


def zeros(run: Run) -> Weights:
    """The start of an importance: a zero for every number that trains."""
    return core.params.zeros_of(run.weights)
