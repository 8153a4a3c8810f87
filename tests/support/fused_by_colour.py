"""A stand-in for a fusion model whose feature of a pair can be worked out by hand."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlcpctl.core.transform import ImageTransform


def feature(image: np.ndarray, text: str, scale: float = 1.0) -> np.ndarray:
    """(4,) of an (H, W, 3) image and its caption: its mean colour, and a number for the words."""
    colour = image.reshape(-1, 3).mean(axis=0) - 127.5
    return scale * np.array([*colour, 20 * (zlib.crc32(text.encode()) % 7 - 3)])


@dataclass
class FusedByColour:
    """Looks at what a fusion encoder is asked for; `fused_pairs` counts it."""

    scale: float = 1.0
    family: str = "fusion"
    autocast: torch.dtype | None = None
    transform: ImageTransform = field(
        default_factory=lambda: ImageTransform(
            image_size=16,
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
            interpolation="bicubic",
            resize_mode="squash",
            fill_color=0,
        )
    )
    module: nn.Module = field(default_factory=nn.Identity)
    fused_pairs: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def tokenize(self, texts: list[str]) -> Tensor:
        self.texts += texts
        return torch.arange(len(self.texts) - len(texts), len(self.texts))

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return images, texts

    def fused(self, images: Tensor, texts: Tensor, weights: Any = None) -> Tensor:
        assert not self.module.training
        assert len(images) == len(texts)
        self.fused_pairs.append(len(texts))
        pairs = zip(images.numpy(), texts.tolist(), strict=True)
        rows = [feature(image, self.texts[number], self.scale) for image, number in pairs]
        return torch.tensor(np.array(rows), dtype=torch.float32)
