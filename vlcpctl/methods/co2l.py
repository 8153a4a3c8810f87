"""Co2L: contrastive continual learning (Cha et al., 2021), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper


@dataclass(frozen=True, kw_only=True)
class Co2l(Method):
    """Use replayed pairs as negatives only, and distil the relations between samples.

    Image-text pairs do not have class labels, so the image-text contrastive loss replaces the
    supervised one, and an image and its text take the place of two views of an instance.
    """

    name: ClassVar[str] = "co2l"
    title: ClassVar[str] = "Co2L: replayed pairs as negatives only, and distilled relations"
    preset: ClassVar[str] = "incclip"
    replaces_base: ClassVar[bool] = True
    by_rows: ClassVar[frozenset[str]] = frozenset({"contrastive", "relations"})
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Co2L: Contrastive Continual Learning",
            authors="Hyuntak Cha, Jaeho Lee and Jinwoo Shin",
            venue="ICCV",
            year=2021,
            url="https://arxiv.org/abs/2106.14413",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0", "asymmetric=false")

    strength: float = hyper(
        1.0, doc="lambda: weight of the relation distillation.", origin="Co2L authors' code"
    )
    now: float = hyper(
        0.2,
        doc="Temperature of the current model's similarities.",
        origin="Co2L authors' code",
        within="(0, inf)",
    )
    then: float = hyper(
        0.01,
        doc="Temperature of the previous model's similarities.",
        origin="Co2L authors' code",
        within="(0, inf)",
    )
    relations: str = hyper(
        "all",
        doc="Similarities to distil: between all images and texts of a batch, or only those "
        "between an image and a text.",
        origin="Co2L, section 4.2, with image and text as its two views; 'cross' is ours",
        choices=("all", "cross"),
    )
    asymmetric: bool = hyper(
        True,
        doc="Use only new pairs as anchors of the contrastive loss.",
        origin="Co2L, section 4.1",
    )
    average: str = hyper(
        "batch",
        doc="Divisor of the contrastive loss: all pairs of the batch, or only the anchors.",
        origin="Co2L authors' code; 'anchors' is ours",
        choices=("batch", "anchors"),
    )

    def needs(self, *, first: bool) -> Needs:
        """After the first task: the previous model, and a buffer for the additional negatives."""
        return Needs(
            buffer=not first and self.asymmetric, previous=not first and self.strength != 0
        )

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The asymmetric contrastive loss, which replaces the base loss, and the distillation."""
        anchors_B = ~(batch.replayed & self.asymmetric)
        count = len(anchors_B) if self.average == "batch" else max(1, int(anchors_B.sum()))
        sides = losses.rows.similarities(
            out.image, out.text, out.scale, out.own, groups_B=batch.groups
        )
        i2t, t2i = (run.row_loss(side, count, out.own, anchors_B=anchors_B) for side in sides)
        terms: Terms = {"contrastive": run.joined(i2t, t2i)}
        if run.first or not self.strength:
            return terms, {}
        old, new = run.previous(batch), (out.image, out.text)
        distil = losses.relations.all_relations
        if self.relations == "cross":
            distil = losses.relations.cross_relations
        kept = distil(new, (old.image, old.text), now=self.now, then=self.then, own=out.own)
        return {**terms, "relations": self.strength * kept}, {}
