"""DER++: dark experience replay with a second draw (Buzzega et al., 2020), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Features, Needs, Run, Terms
from vlcpctl.methods.bases.dark import Dark, contrast


@dataclass(frozen=True, kw_only=True)
class Derpp(Dark):
    """Of a first draw of replayed pairs the stored projections are kept, a second is contrasted.

    Both draws are halves of the batch's replayed pairs, so a pair is never in both at once.
    """

    name: ClassVar[str] = "derpp"
    title: ClassVar[str] = "DER++: dark experience replay, and a second draw that is contrasted"

    beta: float = hyper(
        0.5, doc="Weight of the contrast of the second draw.", origin="DER, CIFAR-100"
    )

    def needs(self, *, first: bool) -> Needs:
        """A buffer once there is something to replay, with features where those are kept."""
        return replace(super().needs(first=first), buffer=not first and any(self._weights))

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The contrast of new pairs, the distance of the first draw, the contrast of the second."""
        terms: Terms = {"contrastive": contrast(run, out, ~batch.replayed)}
        count = int(batch.replayed.sum())
        middle = (count + 1) // 2
        terms |= self.kept(batch, out, slice(0, middle))
        if self.beta and count > 1:
            second_B = batch.replayed & (batch.replayed.cumsum(0) > middle)
            terms["replayed"] = self.beta * contrast(run, out, second_B)
        return terms, {}

    @property
    def _weights(self) -> tuple[float, float]:
        return self.alpha, self.beta
