"""What encoders of both families have in common: pixels, weights by name, raw projections.

Shapes: B samples, L tokens, D channels of the shared space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor, nn

from vlcpctl.core.view import View
from vlcpctl.models.text_tower import TextTower
from vlcpctl.models.tokens import Tokenizer


@dataclass
class BaseEncoder(ABC):
    """A module with an image and a text side, what it takes, and what it was built from."""

    module: nn.Module
    config: dict[str, Any]
    view: View
    tokenizer: Tokenizer
    _held: Tensor = field(init=False, repr=False)  # mean and deviation, see _statistics

    def __post_init__(self) -> None:
        held = torch.tensor((self.view.mean, self.view.std), dtype=torch.float64)
        self._held = held.view(2, 1, 3, 1, 1)

    @property
    def width(self) -> int:
        """D."""
        return int(self.config["embed_dim"])

    def tokenize(self, texts: list[str]) -> Tensor:
        """(n, L) token ids."""
        return self.tokenizer(texts)

    def inputs(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Images as `pixels` gives them, and texts, where the module is."""
        pixels = self.pixels(images)
        return pixels, texts.to(pixels.device)

    def pixels(self, images: Tensor) -> Tensor:
        """(B, H, W, 3) bytes as normalised (B, 3, H, W) floats, where the module is."""
        mean, std = self._statistics
        floats = images.to(mean.device).permute(0, 3, 1, 2).to(mean.dtype).div(255)
        return floats.sub_(mean).div_(std)

    @overload
    def features(
        self, images: Tensor, texts: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]: ...

    def features(
        self,
        images: Tensor | None,
        texts: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (B, D) of both sides, or of the one that is given.

        With other `weights` the model runs in eval mode; buffers that they do not hold, such as
        BatchNorm's statistics, are its own.
        """
        return self._sides(images, texts, weights)

    def embedded_texts(
        self, embeddings: Tensor, ends: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Raw projections (B, D) of texts given as token embeddings (B, L, W), ending at (B,).

        Those of what `text_tower.lookup` gives are those of the ids themselves.
        """
        with self.text_tower.embedding_is(embeddings):
            stand_in = self.text_tower.stand_in(ends, embeddings.shape[1])
            _, text = self.features(None, stand_in, weights)
        assert text is not None
        return text

    @property
    @abstractmethod
    def text_tower(self) -> TextTower:
        """The embedding table of the text encoder, and where texts end."""

    @abstractmethod
    def _sides(
        self, images: Tensor | None, texts: Tensor | None, weights: Mapping[str, Tensor] | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections, as the family makes them."""

    def weights(self) -> dict[str, nn.Parameter]:
        """The module's parameters by name, live."""
        return dict(self.module.named_parameters())

    def buffers(self) -> dict[str, Tensor]:
        """The module's saved buffers by name, live."""
        saved = self.module.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self.module.named_buffers() if name in saved}

    @property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the channels, where the module is."""
        like = next(self.module.parameters())
        if (self._held.device, self._held.dtype) != (like.device, like.dtype):
            self._held = self._held.to(like)
        return self._held[0], self._held[1]
