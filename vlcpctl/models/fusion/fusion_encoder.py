"""Fusion encoders: models built, loaded, saved and run, alone or under other weights.

Shapes: B samples, N tokens of an image, L of a text, C channels of a token, D of the shared space,
m masked tokens, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal, TypeVar, cast, final

from torch import Tensor
from torch.func import functional_call

from vlcpctl.core.words import SpecialTokens
from vlcpctl.models.base import BaseEncoder
from vlcpctl.models.fusion.model import FusionModel, Outputs
from vlcpctl.models.projections import evaluating
from vlcpctl.models.text_tower import TextTower, tower_around
from vlcpctl.models.tokens import WordPieces

Result = TypeVar("Result")


@final
@dataclass
class FusionEncoder(BaseEncoder):
    """An image and a text encoder with a shared space, and a text encoder that sees the image."""

    family: ClassVar[Literal["fusion"]] = "fusion"

    @cached_property
    def special(self) -> SpecialTokens:
        """Ids that stand for no word, and how many ids there are."""
        return cast("WordPieces", self.tokenizer).special

    @cached_property
    def text_tower(self) -> TextTower:
        """The embedding table of the text encoder, and where texts end."""
        words = self.model.text_encoder.embeddings.words
        return tower_around(words, self.module, padding=self.special.pad)

    def outputs(
        self,
        images: Tensor,
        texts: Tensor,
        fused_ids: Tensor,
        at: Tensor | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Outputs:
        """The model's embeddings, token states and word predictions, in one pass over the images.

        `texts` (B, L) are encoded alone and decide where padding is; `fused_ids` (B, L), the same
        texts masked or not, are fused with the images. Words are predicted where `at` (B, L) is
        true, nowhere if it is None. With other `weights` the model runs in eval mode.
        """
        return self._run(partial(self.model.outputs, images, texts, fused_ids, at), weights)

    def fused(
        self, images: Tensor, texts: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """(B, C), the raw [CLS] state of image and text together."""
        return self._run(partial(self.model.fused, images, texts), weights)

    def _sides(
        self, images: Tensor | None, texts: Tensor | None, weights: Mapping[str, Tensor] | None
    ) -> tuple[Tensor | None, Tensor | None]:
        return self._run(partial(self.model.sides, images, texts), weights)

    def _run(self, what: Callable[[], Result], weights: Mapping[str, Tensor] | None) -> Result:
        if weights is None:
            return what()
        with evaluating(self.module):
            found: Result = functional_call(self.module, dict(weights), (what,))
        return found

    @property
    def model(self) -> FusionModel:
        """The module under its own type."""
        return cast("FusionModel", self.module)
