"""Sequential fine-tuning: train on each task in turn without a remedy for forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method


@dataclass(frozen=True, kw_only=True)
class Seqf(Method):
    """Train with the contrastive loss alone; with a buffer this is experience replay."""

    name: ClassVar[str] = "seqf"
    title: ClassVar[str] = "Sequential fine-tuning, the lower bound"
    preset: ClassVar[str] = "ctp"
