"""Runs a dual encoder with other weights or in eval mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class ProjectionModule(nn.Module):
    """Both encoders as one module.

    torch's functional_call replaces the weights of a module's forward; open_clip's own forward
    normalises, so this one returns raw projections (B, D) of images and token ids, None for None.
    """

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(
        self, images: Tensor | None, texts: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of pixels (B, 3, H, W) and of token ids (B, L); None for None."""
        clip: Any = self.clip
        image = None if images is None else clip.encode_image(images)
        text = None if texts is None else clip.encode_text(texts)
        return image, text


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run the block in eval mode; afterwards each submodule has its own mode again."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
