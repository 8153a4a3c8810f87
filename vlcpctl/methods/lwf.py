"""Learning without forgetting (Li and Hoiem, 2016), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Paper
from vlcpctl.methods.bases.distillation import DistillationMethod


@dataclass(frozen=True, kw_only=True)
class Lwf(DistillationMethod):
    """Distil the previous model's outputs on the new task's pairs.

    The default target is CTP's cross-modal term without the rest of CTP, but with the previous
    model's own temperature. The LwF in the tables of CTP's paper has `target=channels`.
    """

    name: ClassVar[str] = "lwf"
    title: ClassVar[str] = "Learning without forgetting: distil the previous model on the new task"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Learning without Forgetting",
            authors="Zhizhong Li and Derek Hoiem",
            venue="ECCV",
            year=2016,
            url="https://arxiv.org/abs/1606.09282",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)
