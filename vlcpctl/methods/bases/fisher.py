"""What EWC and AFEC share: the squares of the loss's gradients say how much a weight is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vlcpctl import losses
from vlcpctl.core.method import Weights
from vlcpctl.methods.bases.measured import Measured

if TYPE_CHECKING:
    from torch import Tensor

VARIANT = "Fisher diagonals summed over tasks (paper), or averaged (ctp)."


@dataclass(frozen=True, kw_only=True)
class Fisher(Measured):
    """A penalty by the Fisher diagonal of the tasks learned."""

    @property
    def importances(self) -> tuple[str, ...]:
        """The Fisher diagonal alone."""
        return ("fisher",)

    @property
    def weight(self) -> float:
        """Half the strength (EWC, eq. 3; AFEC, eq. 9)."""
        return self.strength / 2

    def add(self, importance: Weights, grads: Mapping[str, Tensor], share: float) -> None:
        """The squares of a batch's gradients."""
        losses.importance.add_squares_(importance, grads, share)
