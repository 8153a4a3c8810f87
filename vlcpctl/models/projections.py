"""Both encoders as one module, which functional_call can give other weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class Projections(nn.Module):
    """Runs both encoders as one module, so that functional_call can give it other weights."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(
        self, images: Tensor | None, texts: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        clip: Any = self.clip
        image = None if images is None else clip.encode_image(images)
        text = None if texts is None else clip.encode_text(texts)
        return image, text


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode for what is in training mode; each part goes back to its own."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
