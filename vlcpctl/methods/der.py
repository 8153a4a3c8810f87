"""DER: dark experience replay (Buzzega et al., 2020), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.methods.bases.dark import Dark


@dataclass(frozen=True, kw_only=True)
class Der(Dark):
    """Replayed pairs stay where they were; they take no part in the contrast."""

    name: ClassVar[str] = "der"
    title: ClassVar[str] = "Dark experience replay: replayed pairs keep their stored projections"
