"""Co2L: contrastive continual learning (Cha et al., 2021), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Features, Method, Needs, Paper, Run, Terms


@dataclass(frozen=True, kw_only=True)
class Co2l(Method):
    """Replayed pairs are negatives only, and relations between samples are distilled.

    Pairs have no classes: the supervised contrast is the image-text one, and an image and its text
    stand for the two views of an instance.
    """

    name: ClassVar[str] = "co2l"
    title: ClassVar[str] = "Co2L: replayed pairs are negatives only, relations are distilled"
    preset: ClassVar[str] = "incclip"
    replaces_base: ClassVar[bool] = True
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Co2L: Contrastive Continual Learning",
            authors="Cha, Lee and Shin",
            venue="ICCV",
            year=2021,
            url="https://arxiv.org/abs/2106.14413",
        ),
    )

    strength: float = hyper(
        1.0, doc="lambda: weight of the distilled relations.", origin="Co2L authors' code"
    )
    now: float = hyper(
        0.2,
        doc="Temperature of the current relations.",
        origin="Co2L authors' code",
        within="(0, inf)",
    )
    then: float = hyper(
        0.01,
        doc="Temperature of the previous relations.",
        origin="Co2L authors' code",
        within="(0, inf)",
    )
    relations: str = hyper(
        "all",
        doc="Between all images and texts of a batch, or across the modalities only.",
        origin="Co2L, section 4.2, with image and text as its two views; 'cross' is ours",
        choices=("all", "cross"),
    )
    asymmetric: bool = hyper(
        True, doc="Whether only new pairs are anchors of the contrast.", origin="Co2L, section 4.1"
    )
    average: str = hyper(
        "batch",
        doc="The contrast is divided by the pairs of the batch, or by the anchors among them.",
        origin="Co2L authors' code; 'anchors' is ours",
        choices=("batch", "anchors"),
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, and the pairs that are negatives only, once there are any."""
        return Needs(
            buffer=not first and self.asymmetric, previous=not first and self.strength != 0
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The asymmetric contrast in place of the base loss, and the distilled relations."""
        anchors_B = ~(batch.replayed & self.asymmetric)
        sides = losses.asymmetric.image_text(
            out.image, out.text, out.scale, anchors_B, average=self.average
        )
        terms: Terms = {"contrastive": run.joined(*sides)}
        if run.first or not self.strength:
            return terms, {}
        old, new = run.previous(batch), (out.image, out.text)
        distil = losses.relations.all_relations
        if self.relations == "cross":
            distil = losses.relations.cross_relations
        kept = distil(new, (old.image, old.text), now=self.now, then=self.then)
        return {**terms, "relations": self.strength * kept}, {}
