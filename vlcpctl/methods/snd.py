"""SnD: distil the start or the previous model, sample by sample (Yu et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper


@dataclass(frozen=True, kw_only=True)
class Snd(Method):
    """Keep the image features of reference pairs near those of two frozen models.

    The previous model teaches the images on which it differs from the start of the stream, and the
    start all others. The start is the model of --teacher; without it both are that of --previous.
    The text tower has no term.
    """

    name: ClassVar[str] = "snd"
    title: ClassVar[str] = "SnD: distil the start or the previous model, chosen for each sample"
    note: ClassVar[str] = (
        "the start of the stream is the model of --teacher; without it both teachers are that of "
        "--previous"
    )
    preset: ClassVar[str] = "update"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Select and Distill: Selective Dual-Teacher Knowledge Transfer "
            "for Continual Learning on Vision-Language Models",
            authors="Yu-Chu Yu, Chi-Pin Huang, Jr-Jen Chen, Kai-Po Chang, Yung-Hsuan Lai, "
            "Fu-En Yang and Yu-Chiang Frank Wang",
            venue="ECCV",
            year=2024,
            url="https://arxiv.org/abs/2403.09296",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("previous=0", "start=0")

    previous: float = hyper(
        9.0, doc="Weight of the distance to the previous model.", origin="SnD authors' code"
    )
    start: float = hyper(
        0.5, doc="Weight of the distance to the start.", origin="SnD authors' code"
    )
    select: str = hyper(
        "sample",
        doc="What the selection weighs: each sample, or the whole batch by its mean.",
        origin="SnD, section 3; 'batch' is what the authors' code computes",
        choices=("sample", "batch"),
    )
    slope: float = hyper(
        6.0, doc="Slope of the selection over the distance.", origin="SnD authors' code"
    )
    threshold: float = hyper(
        0.2,
        doc="Distance between the two models at which both count half.",
        origin="SnD authors' code",
        depends="the model and how far it has moved from the start: 0.2 was tuned for ViT-B/16",
    )

    def needs(self, *, first: bool) -> Needs:
        """Reference pairs and both models, after the first task, unless both weights are 0."""
        distils = not first and bool(self.previous or self.start)
        return Needs(reference=distils, previous=distils, previous_weights=distils)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The distances to both teachers, each weighted by the selection."""
        new = out.reference
        if new is None or batch.reference is None or not (self.previous or self.start):
            return {}, {}
        start_BD = run.previous(batch.reference).image
        before_BD = run.features(batch.reference, run.anchor).image
        trust_B = losses.selection.trust_in_newer(
            start_BD, before_BD, slope=self.slope, threshold=self.threshold
        )
        by_sample = self.select == "sample"
        before, start = (
            losses.selection.selected_distance(new.image, teacher, weight, by_sample=by_sample)
            for teacher, weight in ((before_BD, trust_B), (start_BD, 1 - trust_B))
        )
        return {"previous": self.previous * before, "start": self.start * start}, {}
