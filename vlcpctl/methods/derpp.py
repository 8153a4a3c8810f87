"""DER++: DER that also contrasts replayed pairs (Buzzega et al., 2020), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Needs, Run, hyper
from vlcpctl.methods.bases.dark_replay import DarkReplay, contrast


@dataclass(frozen=True, kw_only=True)
class Derpp(DarkReplay):
    """Distil one half of the replayed pairs as DER does, and contrast the other half.

    The paper samples the buffer twice. Here the two samples are the halves of the batch's replayed
    pairs, so a pair is never in both.
    """

    name: ClassVar[str] = "derpp"
    title: ClassVar[str] = (
        "DER++: dark experience replay, plus the contrastive loss on other replayed pairs"
    )

    beta: float = hyper(
        0.5,
        doc="Weight of the contrastive loss on the second half of the replayed pairs.",
        origin="DER, CIFAR-100",
    )

    def needs(self, *, first: bool) -> Needs:
        """After the first task: a buffer, with stored features unless `alpha` is 0."""
        return replace(super().needs(first=first), buffer=not first and any(self._weights))

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Contrastive loss of new pairs and of the second half, distillation of the first."""
        terms: Terms = {"contrastive": contrast(run, batch, out, ~batch.replayed)}
        count = int(batch.replayed.sum())
        middle = (count + 1) // 2
        terms |= self.stored_distance(batch, out, slice(0, middle))
        if self.beta and count > 1:
            second_B = batch.replayed & (batch.replayed.cumsum(0) > middle)
            terms["replayed"] = self.beta * contrast(run, batch, out, second_B)
        return terms, {}

    @property
    def _weights(self) -> tuple[float, float]:
        return self.alpha, self.beta
