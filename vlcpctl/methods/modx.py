"""Mod-X: off-diagonal information alignment (Ni et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper


@dataclass(frozen=True, kw_only=True)
class Modx(Method):
    """Distil the rows of the similarity matrix where the previous model ranks the match first."""

    name: ClassVar[str] = "modx"
    title: ClassVar[str] = (
        "Mod-X: distil the similarity rows that the previous model ranks correctly"
    )
    preset: ClassVar[str] = "modx"
    by_rows: ClassVar[frozenset[str]] = frozenset({"alignment"})
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Continual Vision-Language Representation Learning with Off-Diagonal Information",
            authors="Zixuan Ni, Longhui Wei, Siliang Tang, Yueting Zhuang and Qi Tian",
            venue="ICML",
            year=2023,
            url="https://arxiv.org/abs/2305.07437",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("alpha=0",)

    alpha: float = hyper(
        20.0,
        doc="Weight of the alignment term.",
        origin="Mod-X eq. 5, table 4(a), appendix B.1",
        depends="the batch size: reduction=sum adds up its rows, so that 20 at 64 pairs weighs 4.4 "
        "times less than at the paper's 280; 20 * 280 / pairs weighs the same",
    )
    directions: str = hyper(
        "both",
        doc="Similarity matrices to distil; the paper's equations give i2t only.",
        origin="Mod-X, released code",
        choices=("both", "i2t"),
    )
    reduction: str = hyper(
        "sum",
        doc="Reduction over the rows of a batch.",
        origin="Mod-X eq. 4",
        choices=("sum", "mean"),
    )
    temperature: float = hyper(
        1.0,
        doc="Temperature of the cosines in the alignment term.",
        origin="Mod-X, released code",
        within="(0, inf)",
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, after the first task and unless `alpha` is 0."""
        return Needs(previous=not first and self.alpha != 0)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """Alpha times the alignment of the current similarities with the previous ones."""
        if run.first or not self.alpha:
            return {}, {}
        old = run.previous(batch)
        new_bB = losses.rows.similarities(out.image, out.text, 1.0, out.own)
        old_bB = losses.rows.similarities(old.image, old.text, 1.0, out.own)
        count = 2 if self.directions == "both" else 1
        kept = [
            losses.alignment.off_diagonal(
                new, then, reduction=self.reduction, temperature=self.temperature, own=out.own
            )
            for new, then in list(zip(new_bB, old_bB, strict=True))[:count]
        ]
        return {"alignment": self.alpha * sum(kept[1:], kept[0]) / len(kept)}, {}
