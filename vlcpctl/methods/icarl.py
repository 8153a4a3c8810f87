"""iCaRL (Rebuffi et al., 2017), for image-text pairs as the CTP authors have it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from vlcpctl.core.method import Needs, Paper
from vlcpctl.methods.bases.distilled import Distilled


@dataclass(frozen=True, kw_only=True)
class Icarl(Distilled):
    """Distil the previous model on new pairs and on a herding buffer's alike.

    Pairs have no classes, so there is neither a classifier by the nearest mean of exemplars nor a
    binary cross-entropy over classes.
    """

    name: ClassVar[str] = "icarl"
    title: ClassVar[str] = "iCaRL: distillation on new pairs and those nearest to the mean"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="iCaRL: Incremental Classifier and Representation Learning",
            authors="Rebuffi, Kolesnikov, Sperl and Lampert",
            venue="CVPR",
            year=2017,
            url="https://arxiv.org/abs/1611.07725",
        ),
    )

    def needs(self, *, first: bool) -> Needs:
        """The previous model and a herding buffer, once there is something to replay."""
        return replace(super().needs(first=first), buffer=not first, policy="herding")
