"""A text tower run from token embeddings instead of token ids.

The tower runs its own code: only the output of its embedding table is replaced, and it is given
placeholder ids that mark where a text ends. So positions, masks and pooling are exactly those of
open_clip and transformers.

Shapes: b texts, L tokens, W channels of a token's embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call


@final
@dataclass(frozen=True)
class TextTower:
    """The embedding table of a text tower, and the ids by which the tower finds a text's end."""

    embedding: nn.Module
    name: str  # the table's name among the module's submodules
    pooling: str  # argmax or eos; with any other pooling the end is the last token
    padding: int
    end: int
    word: int  # the placeholder for a word: neither padding nor the end

    @property
    def width(self) -> int:
        """W, the channels of a token's embedding."""
        width: int = next(self.embedding.parameters()).shape[1]
        return width

    def lookup(self, ids: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """(b, L, W) embeddings of token ids (b, L), without positions."""
        table = {}
        for name, tensor in (weights or {}).items():
            part, _, own = name.rpartition(".")
            if part == self.name:
                table[own] = tensor
        embeddings: Tensor = functional_call(self.embedding, table, (ids,))
        return embeddings

    def ends(self, ids: Tensor) -> Tensor:
        """(b,) the position of each text's end-of-text token, or of its last non-padding token."""
        if self.pooling == "argmax":
            return ids.argmax(-1)
        if self.pooling == "eos":
            return (ids == self.end).int().argmax(-1)
        places = torch.arange(ids.shape[1], device=ids.device)
        return torch.where(ids == self.padding, 0, places).amax(-1)

    def stand_in(self, ends: Tensor, length: int) -> Tensor:
        """(b, L) placeholder ids of texts with these ends (b,)."""
        places = torch.arange(length, device=ends.device)
        words = torch.where(places < ends[:, None], self.word, self.padding)
        return torch.where(places == ends[:, None], self.end, words)

    @contextmanager
    def embedding_is(self, embeddings: Tensor) -> Iterator[None]:
        """Within the block the table returns these embeddings (b, L, W) for any ids."""
        hook = self.embedding.register_forward_hook(lambda *_: embeddings)
        try:
            yield
        finally:
            hook.remove()


def tower_around(
    embedding: nn.Module,
    module: nn.Module,
    *,
    pooling: str = "none",
    padding: int | None = 0,
    end: int | None = None,
) -> TextTower:
    """The text tower of a module with this embedding table.

    With argmax pooling the highest id ends a text; with other pooling than argmax and eos any id
    can mark the end.
    """
    highest = int(next(embedding.parameters()).shape[0]) - 1
    if padding is None:
        padding = 0
    if pooling != "eos" or end is None:
        end = highest if highest != padding else highest - 1
    word = next(number for number in range(highest + 1) if number not in (padding, end))
    name = next(name for name, part in module.named_modules() if part is embedding)
    return TextTower(embedding, name, pooling, padding, end, word)


def open_clip_tower(module: nn.Module) -> TextTower:
    """The text tower of an open_clip module, whether open_clip's own or one of transformers."""
    clip: Any = module
    tower = getattr(clip, "text", clip)
    if getattr(tower, "config", None) is not None:
        embedding = tower.transformer.get_input_embeddings()
        return tower_around(embedding, module, padding=tower.config.pad_token_id)
    if tower is clip:
        pooling, padding, end = clip.text_pool_type, 0, clip.text_eos_id
    else:
        pooling, padding, end = tower.pool_type, tower.pad_id, tower.eos_id
    embedding = tower.token_embedding
    return tower_around(embedding, module, pooling=pooling, padding=padding, end=end)
