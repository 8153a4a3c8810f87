"""The model of a checkpoint as the processes of a pool load it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder


@dataclass(frozen=True)
class SavedEncoder:
    """The model in a checkpoint directory."""

    directory: Path

    def load(self, device: str) -> Encoder:
        """The model in eval mode; raises as `encoders.load_for_inference` does."""
        return encoders.load_for_inference(self.directory, device)
