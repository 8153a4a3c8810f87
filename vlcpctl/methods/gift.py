"""GIFT: distil and align reference pairs, and keep what they use (Wu et al., 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper

if TYPE_CHECKING:
    from torch import Tensor

_ELSEWHERE = 1e-6  # the importance of weights that the reference does not reach, in authors' code


@dataclass(frozen=True, kw_only=True)
class Gift(Method):
    """Keep similarities of reference pairs, and hold back the weights that these depend on.

    Similarities are between the model's images and its texts, so that both towers learn, at the
    model's own temperature, which gets no gradient. The frozen model is that of --previous, as in
    the paper, or of --teacher. Its errors are corrected by a contrastive loss on the same pairs. In
    each step, the gradient of both is what decides how important a weight is.
    """

    name: ClassVar[str] = "gift"
    title: ClassVar[str] = (
        "GIFT: distil and align reference pairs, and hold back the weights that these depend on"
    )
    note: ClassVar[str] = "distils the model of --teacher, else of --previous, which is the paper's"
    preset: ClassVar[str] = "update"
    by_rows: ClassVar[frozenset[str]] = frozenset({"image", "text", "alignment"})
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Synthetic Data is an Elegant GIFT for Continual Vision-Language Models",
            authors="Bin Wu, Wuxuan Shi, Jinqiao Wang and Mang Ye",
            venue="CVPR",
            year=2025,
            url="https://arxiv.org/abs/2503.04229",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0", "alignment=0")

    strength: float = hyper(
        1.0, doc="Weight of both distillation terms.", origin="GIFT authors' code"
    )
    divergence: str = hyper(
        "forward",
        doc="What distils: forward, the KL divergence from the frozen model to this one, or "
        "reverse, that from this one to the frozen model.",
        origin="GIFT authors' code, which has 'reverse' as an option",
        choices=("forward", "reverse"),
    )
    temperature: float = hyper(
        2.0,
        doc="Divisor of the similarities in both distillation terms, beside the model's own "
        "temperature.",
        origin="GIFT authors' code",
        within="(0, inf)",
    )
    alignment: float = hyper(
        0.25,
        doc="Weight of the contrastive loss of the reference pairs, images and texts each.",
        origin="GIFT authors' code",
    )
    smoothing: float = hyper(
        0.2,
        doc="Label smoothing of that loss.",
        origin="GIFT authors' code",
        within="[0, 1]",
    )
    consolidation: float = hyper(
        1.0,
        doc="Weight of the penalty on changes to important weights; nothing is important without "
        "distillation and alignment.",
        origin="GIFT authors' code",
        depends="the size of the model: the mean importance is 1 in every tensor, and the penalty "
        "is a sum over all weights; 1 was used for ViT-B/16",
    )

    def needs(self, *, first: bool) -> Needs:
        """Reference pairs after the first task, and what the terms with a weight above 0 take."""
        refers = not first and bool(self.strength or self.alignment)
        penalises = refers and self.consolidation != 0
        return Needs(
            reference=refers,
            reference_gradient=penalises,
            previous=refers and self.strength != 0,
            previous_weights=penalises,
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The distillation of both modalities and the alignment, on the reference pairs."""
        new, terms = out.reference, {}
        if new is None or batch.reference is None:
            return {}, {}
        scale = new.scale.detach()
        new_bB = losses.rows.similarities(new.image, new.text, scale, new.own)
        if self.strength:
            old = run.previous(batch.reference)
            old_bB = losses.rows.similarities(old.image, old.text, scale, new.own)
            image, text = map(self._distilled, old_bB, new_bB)
            terms = {"image": self.strength * image, "text": self.strength * text}
        if self.alignment:
            groups = batch.reference.groups
            image, text = (
                losses.contrastive.smoothed(
                    logits, new.own, smoothing=self.smoothing, groups_B=groups
                )
                for logits in new_bB
            )
            terms["alignment"] = self.alignment * (image + text)
        return terms, {}

    def after_reference(
        self, run: Run, grads: Mapping[str, Tensor]
    ) -> tuple[Terms, Mapping[str, Tensor]]:
        """The penalty on changes since the start of the task, weighted by the squared gradient."""
        weights = core.params.trainable(run.weights)
        importance = losses.importance.squares_over_mean(grads, weights, _ELSEWHERE)
        value = losses.penalty.quadratic(importance, weights, run.anchor)
        gradient = losses.penalty.gradient_in_(
            importance, weights, run.anchor, strength=self.consolidation
        )
        return {"consolidation": self.consolidation * value}, gradient

    def _distilled(self, old_bB: Tensor, new_bB: Tensor) -> Tensor:
        pair = (old_bB, new_bB) if self.divergence == "forward" else (new_bB, old_bB)
        return losses.distillation.softened(
            *pair, temperature=self.temperature, count=new_bB.shape[1]
        )
