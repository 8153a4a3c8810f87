"""Backward-compatible training (Shen et al., 2020), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper


@dataclass(frozen=True, kw_only=True)
class Bct(Method):
    """Contrast new queries with the previous model's embeddings, as its gallery will be searched.

    With the current model's f (images) and g (texts), and the previous model's f' and g', frozen:

        L_bc = 1/2 [InfoNCE(f(x), g'(y)) + InfoNCE(g(y), f'(x))]

    at the previous model's temperature. In the paper the frozen part is the previous classifier.
    Image-text pairs do not have one: the previous embeddings of the other modality are its weights,
    so that this is CTP's momentum contrast (its eq. 4) with the previous model as momentum model.
    """

    name: ClassVar[str] = "bct"
    title: ClassVar[str] = (
        "Backward-compatible training: new queries find their matches in the previous model's index"
    )
    preset: ClassVar[str] = "ctp"
    by_rows: ClassVar[frozenset[str]] = frozenset({"compatible"})
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Towards Backward-Compatible Representation Learning",
            authors="Yantao Shen, Yuanjun Xiong, Wei Xia and Stefano Soatto",
            venue="CVPR",
            year=2020,
            url="https://arxiv.org/abs/2003.11942",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        1.0,
        doc="Weight of the compatibility term.",
        origin="code of BCT's first author: 1, for the term with the previous classifier",
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, after the first task and unless `strength` is 0."""
        return Needs(previous=not first and self.strength != 0)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The strength times the contrast of new images with old texts, and new texts with old."""
        if run.first or not self.strength:
            return {}, {}
        old = run.previous(batch)
        groups = batch.groups
        gallery = losses.momentum.Candidates(
            image=old.image,
            text=old.text,
            queue_image=old.image[:0],
            queue_text=old.text[:0],
            groups=None if groups is None else (groups, groups[:0]),
        )
        # With a softmax for a sigmoid model, too: the order of the gallery is what must be kept,
        # and the live bias belongs to the live scale.
        term = losses.momentum.momentum_contrast(
            (out.image, out.text), gallery, old.scale, own=out.own
        )
        return {"compatible": self.strength * term}, {}
