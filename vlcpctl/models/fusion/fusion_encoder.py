"""Fusion encoders: they run a fusion model with its own or other weights.

Shapes: B samples, N tokens of an image, L tokens of a text, C channels of a token, D channels of
the shared space, m masked tokens, V words in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast, final

from torch import Tensor

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.models.base import BaseEncoder, Sides
from vlcpctl.models.fusion.model import FusionModel, Outputs
from vlcpctl.models.text_tower import TextTower, tower_around
from vlcpctl.models.tokenizers import WordPieces


@final
@dataclass
class FusionEncoder(BaseEncoder):
    """A fusion model: both encoders with a shared space, and the fusion of text and image."""

    family: ClassVar[Literal["fusion"]] = "fusion"

    @cached_property
    def special(self) -> SpecialTokens:
        """The ids of the special tokens, and the number of ids."""
        return cast("WordPieces", self.tokenizer).special

    @cached_property
    def text_tower(self) -> TextTower:
        """The text encoder's embedding table, and how the encoder finds the end of a text."""
        words = self.model.text_encoder.embeddings.words
        return tower_around(words, self.module, padding=self.special.pad)

    def outputs(
        self,
        images: Tensor,
        texts: Tensor,
        fused_ids: Tensor,
        at: Tensor | tuple[Tensor, Tensor] | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Outputs:
        """The model's embeddings, token states and word predictions, in one pass over the images.

        `texts` (B, L) are encoded alone and decide where padding is; `fused_ids` (B, L), the same
        texts masked or not, are fused with the images. Words are predicted where `at` (B, L) is
        true, or at its rows and places (m,), nowhere if it is None. With other `weights` the model
        runs in eval mode.
        """
        return self._run(self.model.outputs, weights, images, texts, fused_ids, at)

    def fused(
        self, images: Tensor, texts: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """The raw [CLS] state (B, C) of texts (B, L) fused with images (B, 3, H, W).

        With other `weights` the model runs in eval mode.
        """
        return self._run(self.model.fused, weights, images, texts)

    def checkpoint_gradients(self) -> None:
        """Recompute the activations of the layers in backward, instead of storing them."""
        self.model.checkpoint_gradients()

    def _sides(self, images: Tensor | None, texts: Tensor | None) -> Sides:
        return self.model.sides(images, texts)

    @property
    def model(self) -> FusionModel:
        """The module, typed as a FusionModel."""
        return cast("FusionModel", self.module)
