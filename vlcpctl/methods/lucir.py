"""LUCIR (Hou et al., 2019), for image-text pairs as in the CTP authors' code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms, Tokens
from vlcpctl.core.method import Method, Needs, Paper, Part, Run, hyper


@dataclass(frozen=True, kw_only=True)
class Lucir(Method):
    """Distil the direction of each sample's features.

    Image-text pairs do not have class labels, so the margin between classes is left out. A new
    fusion model gets the CTP authors' cosine heads (`--heads`); dual encoders keep their heads.
    Its paper chooses the buffer by herding; IncCLIP's UCIR has one chosen by reservoir sampling.
    """

    name: ClassVar[str] = "lucir"
    title: ClassVar[str] = "LUCIR: distil the direction of features, with a buffer"
    preset: ClassVar[str] = "ctp"
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType({"heads": "cosine"})
    usual_policy: ClassVar[str] = "herding"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Learning a Unified Classifier Incrementally via Rebalancing",
            authors="Saihui Hou, Xinyu Pan, Chen Change Loy, Zilei Wang and Dahua Lin",
            venue="CVPR",
            year=2019,
            url="https://openaccess.thecvf.com/content_CVPR_2019/html/"
            "Hou_Learning_a_Unified_Classifier_Incrementally_via_Rebalancing_CVPR_2019_paper.html",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        1.0, doc="Weight of the distillation terms.", origin="CTP authors' code"
    )
    words: bool = hyper(
        True,
        doc="Distil the predictions of masked words too (fusion models).",
        origin="CTP authors' code",
    )
    variant: str = hyper(
        "paper",
        doc="Directions to distil: of the projections (paper), or of each channel's profile over "
        "all tokens, padding included (ctp, fusion models).",
        origin="LUCIR, eq. 6; 'ctp' is the CTP authors' code",
        choices=("paper", "ctp"),
    )

    def needs(self, *, first: bool) -> Needs:
        """After the first task: a buffer and, unless `strength` is 0, the previous model."""
        distils = not first and self.strength != 0
        return Needs(
            buffer=not first,
            previous=distils,
            previous_tokens=distils and (self.words or self.variant == "ctp"),
            fusion=self.variant == "ctp",
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """One minus the cosine of old and new projections, averaged over both modalities."""
        if run.first or not self.strength or self.variant == "ctp":
            return {}, {}
        old = run.previous(batch)
        image = losses.direction.cosine_distance(out.image, old.image).mean()
        text = losses.direction.cosine_distance(out.text, old.text).mean()
        return {"direction": self.strength * (image + text) / 2}, {}

    def token_loss(self, run: Run, part: Part, out: Tokens) -> Terms:
        """Distil the profiles over tokens (variant=ctp) and the predictions of masked words."""
        if run.first or not self.strength:
            return {}
        terms: Terms = {}
        old = part.previous()
        if self.variant == "ctp":
            image = losses.direction.profile_cosine_distance(out.image, old.image).sum()
            text = losses.direction.profile_cosine_distance(out.text, old.text).sum()
            terms["direction"] = self.strength * (image + text) / 2 / part.pairs
        if self.words:
            kept = losses.masked.soft_word_loss(out.logits, old.logits)
            terms["words"] = self.strength * kept / part.masked
        return terms
