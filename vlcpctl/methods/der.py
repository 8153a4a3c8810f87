"""DER: dark experience replay (Buzzega et al., 2020), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.methods.bases.dark_replay import DarkReplay


@dataclass(frozen=True, kw_only=True)
class Der(DarkReplay):
    """Distil the stored projections of replayed pairs, which the contrastive loss leaves out."""

    name: ClassVar[str] = "der"
    title: ClassVar[str] = "Dark experience replay: distil the stored projections of replayed pairs"
