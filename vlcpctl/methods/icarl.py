"""iCaRL (Rebuffi et al., 2017), for image-text pairs as in the CTP authors' code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from vlcpctl.core.method import Needs, Paper
from vlcpctl.methods.bases.distillation import DistillationMethod


@dataclass(frozen=True, kw_only=True)
class Icarl(DistillationMethod):
    """Distil the previous model on new pairs and on the pairs of a herding buffer.

    Image-text pairs do not have class labels, so the nearest-mean-of-exemplars classifier and the
    binary cross-entropy over classes are left out.
    """

    name: ClassVar[str] = "icarl"
    title: ClassVar[str] = "iCaRL: distil the previous model on new pairs and a herding buffer"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="iCaRL: Incremental Classifier and Representation Learning",
            authors="Sylvestre-Alvise Rebuffi, Alexander Kolesnikov, Georg Sperl and Christoph H. "
            "Lampert",
            venue="CVPR",
            year=2017,
            url="https://arxiv.org/abs/1611.07725",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    def needs(self, *, first: bool) -> Needs:
        """After the first task: the previous model and a herding buffer."""
        return replace(super().needs(first=first), buffer=not first, policy="herding")
