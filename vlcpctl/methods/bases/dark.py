"""What DER and DER++ share: replayed pairs are compared with what the buffer stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.hyper import hyper
from vlcpctl.core.method import Batch, Features, Method, Needs, Paper, Run, Terms

if TYPE_CHECKING:
    from torch import Tensor

PAPER = Paper(
    title="Dark Experience for General Continual Learning: a Strong, Simple Baseline",
    authors="Buzzega, Boschini, Porrello, Abati and Calderara",
    venue="NeurIPS",
    year=2020,
    url="https://arxiv.org/abs/2004.07211",
)


@dataclass(frozen=True, kw_only=True)
class Dark(Method):
    """The contrast is between new pairs alone; of replayed ones the stored projections are kept.

    Pairs have no classes: the projections stand for the logits, and the contrast for the
    cross-entropy.
    """

    preset: ClassVar[str] = "dha"
    replaces_base: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType({"replay": "share=0.5"})
    papers: ClassVar[tuple[Paper, ...]] = (PAPER,)

    alpha: float = hyper(
        0.3, doc="Weight of the distance to the stored projections.", origin="DER, CIFAR-100"
    )
    target: str = hyper(
        "unit",
        doc="Projections of unit length, as they are compared, or raw, as logits are.",
        origin="ours",
        choices=("unit", "raw"),
    )

    def needs(self, *, first: bool) -> Needs:
        """A buffer with stored features, once there is something to replay."""
        replays = not first and self.alpha != 0
        return Needs(buffer=replays, stored_features=replays)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The contrast of new pairs, and the distance of replayed ones."""
        terms: Terms = {"contrastive": contrast(run, out, ~batch.replayed)}
        return terms | self.kept(batch, out, slice(None)), {}

    def kept(self, batch: Batch, out: Features, draw: slice) -> Terms:
        """Alpha times the distance of a draw of the replayed pairs, averaged over both sides."""
        rows_R = batch.replayed.nonzero().flatten()[draw]
        if not self.alpha or batch.stored is None or not len(rows_R):
            return {}
        pairs = ((out.raw_image, batch.stored.image), (out.raw_text, batch.stored.text))
        image, text = (
            losses.dark.distance(
                new_BD[rows_R.to(new_BD.device)],
                stored_RD[draw].to(new_BD),
                unit=self.target == "unit",
            )
            for new_BD, stored_RD in pairs
        )
        return {"dark": self.alpha * (image + text) / 2}


def contrast(run: Run, out: Features, among_B: Tensor) -> Tensor:
    """The base loss of some pairs among themselves; 0 where there are none."""
    rows_B = among_B.to(out.image.device)
    if not rows_B.any():
        return 0 * out.scale
    return run.joined(
        *losses.contrastive.image_text(out.image[rows_B], out.text[rows_B], out.scale)
    )
