"""Dual encoders: open_clip models built, loaded, saved and run, their checkpoints readable by open_clip itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from vlcpctl.data.views import View


@final
@dataclass
class DualEncoder:
    """An image and a text encoder with a shared space."""

    module: nn.Module
    config: dict[str, Any]
    view: View

    def tokenize(self, texts: list[str]) -> Tensor:
        """(n, L) token ids."""
        raise NotImplementedError

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """(B, H, W, 3) bytes as the normalised floats that the module takes, on the module's device; and the texts there."""
        raise NotImplementedError

    def features(
        self, images: Tensor | None, texts: Tensor | None, weights: dict[str, Tensor] | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of both sides; with other weights in eval mode."""
        raise NotImplementedError

    def weights(self) -> dict[str, nn.Parameter]:
        """The module's parameters by name, live."""
        raise NotImplementedError

    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers by name, live."""
        raise NotImplementedError


def build(
    model: str | Path,
    pretrained: str | None,
    *,
    temperature: str | None = None,
    seed: int = 0,
    text_length: int | None = None,
    image_size: int | None = None,
) -> DualEncoder:
    """A new model: an open_clip name, a packaged name such as `tiny`, or a JSON config file."""
    raise NotImplementedError


def load(directory: Path) -> DualEncoder:
    """The model of a checkpoint directory."""
    raise NotImplementedError


def save(encoder: DualEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files, which `open_clip` loads as local-dir:DIRECTORY."""
    raise NotImplementedError
