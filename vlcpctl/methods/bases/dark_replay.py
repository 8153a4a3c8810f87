"""Shared by DER and DER++: distil the projections that the buffer stores with its pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import core, losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper

if TYPE_CHECKING:
    from torch import Tensor

PAPER = Paper(
    title="Dark Experience for General Continual Learning: a Strong, Simple Baseline",
    authors="Pietro Buzzega, Matteo Boschini, Angelo Porrello, Davide Abati and Simone Calderara",
    venue="NeurIPS",
    year=2020,
    url="https://arxiv.org/abs/2004.07211",
)


@dataclass(frozen=True, kw_only=True)
class DarkReplay(Method):
    """Contrast new pairs with each other, and distil the stored projections of replayed pairs.

    Image-text pairs do not have class labels: projections replace the paper's logits, and the
    contrastive loss replaces its cross-entropy.
    """

    preset: ClassVar[str] = "dha"
    replaces_base: ClassVar[bool] = True
    by_rows: ClassVar[frozenset[str]] = frozenset({"contrastive", "replayed"})
    settings: ClassVar[Mapping[str, Any]] = MappingProxyType({"replay": "share=0.5"})
    papers: ClassVar[tuple[Paper, ...]] = (PAPER,)

    alpha: float = hyper(
        0.3,
        doc="Weight of the squared distance to the stored projections.",
        origin="DER, CIFAR-100",
        depends="the lengths of what is compared: with target=unit the distance is at most 4; that "
        "of the logits in DER's paper has no bound",
    )
    target: str = hyper(
        "unit",
        doc="Projections to compare: scaled to unit length as for retrieval, or raw as logits.",
        origin="ours",
        choices=("unit", "raw"),
    )

    def needs(self, *, first: bool) -> Needs:
        """After the first task: a buffer with stored features, unless `alpha` is 0."""
        replays = not first and self.alpha != 0
        return Needs(buffer=replays, stored_features=replays)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """The contrastive loss of new pairs, and the distillation of replayed pairs."""
        terms: Terms = {"contrastive": contrast(run, batch, out, ~batch.replayed)}
        return terms | self.stored_distance(batch, out, slice(None)), {}

    def stored_distance(self, batch: Batch, out: Features, draws: slice) -> Terms:
        """Alpha times the distance from the stored projections, averaged over both modalities.

        `draws` is the slice of the replayed pairs to compare; without any the term is left out.
        """
        rows_R = batch.replayed.nonzero().flatten()[draws]
        if not self.alpha or batch.stored is None or not len(rows_R):
            return {}
        rows_R = core.devices.to_device(rows_R, out.image.device)
        pairs = ((out.raw_image, batch.stored.image), (out.raw_text, batch.stored.text))
        image, text = (
            losses.dark.distance(
                new_BD[rows_R],
                stored_RD[draws].to(new_BD),
                unit=self.target == "unit",
            )
            for new_BD, stored_RD in pairs
        )
        return {"dark": self.alpha * (image + text) / 2}


def contrast(run: Run, batch: Batch, out: Features, among_B: Tensor) -> Tensor:
    """The base loss among the pairs that `among_B` (B,) marks as true; 0 without any."""
    # Found on the CPU, where `Batch.replayed` is: a mask on a GPU would make the CPU wait for it.
    rows_R = among_B.nonzero().flatten()
    if not len(rows_R):
        return 0 * out.scale
    own = out.own
    if own != slice(None):  # the places of the own pairs among the marked ones
        own = slice(*(int(among_B[:end].sum()) for end in (own.start, own.stop)))
    rows_R = core.devices.to_device(rows_R, out.image.device)
    groups_R = None if batch.groups is None else batch.groups[rows_R]
    of = (out.image[rows_R], out.text[rows_R], out.scale, own)
    return run.joined(*losses.contrastive.image_text(*of, groups_B=groups_R, rows=run.row_loss))
