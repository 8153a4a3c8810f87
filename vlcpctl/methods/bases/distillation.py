"""Shared by LwF and iCaRL: distil the previous model's outputs on the pairs of each batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms, Tokens
from vlcpctl.core.method import Method, Needs, Part, Run, hyper

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DistillationMethod(Method):
    """Distil similarities or feature channels and, for fusion models, masked-word predictions."""

    preset: ClassVar[str] = "ctp"
    by_rows: ClassVar[frozenset[str]] = frozenset({"distill"})

    strength: float = hyper(1.0, doc="Weight of the distillation terms.", origin="CTP, section 4.2")
    target: str = hyper(
        "similarity",
        doc="Outputs to distil: similarity (rows of the image-text similarity matrix, as CTP's "
        "cross-modal term), or channels (of the raw projections, as CTP's paper ran LwF).",
        origin="ours, from CTP eqs. 6-7; 'channels' is the CTP authors' code for LwF and iCaRL",
        choices=("similarity", "channels"),
    )
    channel_temperature: float = hyper(
        0.07,
        doc="Temperature of the softmax over channels (target=channels).",
        origin="CTP authors' code",
        within="(0, inf)",
    )
    words: bool = hyper(
        True,
        doc="Distil the predictions of masked words too (fusion models).",
        origin="CTP authors' code",
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, after the first task and unless `strength` is 0."""
        distils = not first and self.strength != 0
        return Needs(previous=distils, previous_tokens=distils and self.words)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """KL from the previous model's distributions to the current ones, both modalities."""
        if run.first or not self.strength:
            return {}, {}
        old = run.previous(batch)
        terms = (
            self._similarities(out, old)
            if self.target == "similarity"
            else self._channels(out, old)
        )
        return {"distill": self.strength * terms}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Cross-entropy with the previous model's predictions of the masked words."""
        if run.first or not (self.strength and self.words):
            return {}
        loss = losses.masked.soft_word_loss(out.logits, part.previous().logits)
        return {"words": self.strength * loss / part.masked}

    def _similarities(self, out: Features, old: Features) -> Tensor:
        new = losses.rows.similarities(out.image, out.text, out.scale, out.own)
        then = losses.rows.similarities(old.image, old.text, old.scale, out.own)
        count = len(out.image)
        image, text = (losses.distillation.row_kl(then[i], new[i], count) for i in (0, 1))
        return (image + text) / 2

    def _channels(self, out: Features, old: Features) -> Tensor:
        pairs = ((old.raw_image, out.raw_image), (old.raw_text, out.raw_text))
        image, text = (
            losses.distillation.row_kl(
                then[out.own] / self.channel_temperature,
                new[out.own] / self.channel_temperature,
                len(new),
            )
            for then, new in pairs
        )
        return (image + text) / 2
