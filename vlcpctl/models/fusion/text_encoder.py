"""The text side of a fusion model: a BERT whose last layers attend to the image.

The layers are torch's own with a norm after each part (post-norm), as in BERT, and bidirectional:
there is no causal mask. Inside, the sequence comes first, (L, b, C). With the batch first torch
would use fused kernels where no gradient is needed, whose results differ in the last bits.

Shapes: b texts, L tokens of a text, N tokens of an image, C channels of a token.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from vlcpctl.models.fusion.configuration import TextConfig

EPSILON = 1e-12  # BERT's

Layer = TypeVar("Layer", nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class Embeddings(nn.Module):
    """BERT's embeddings: word, position and the first token type, summed and normalised."""

    def __init__(self, config: TextConfig, words: int, pad: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, config.width, padding_idx=pad)
        self.positions = nn.Embedding(config.positions, config.width)
        self.token_types = nn.Embedding(config.token_types, config.width)
        self.norm = nn.LayerNorm(config.width, eps=EPSILON)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """(L, b, C) embeddings of token ids (b, L)."""
        placed = self.positions.weight[: ids.shape[1]] + self.token_types.weight[0]
        summed: Tensor = self.dropout(self.norm(self.words(ids) + placed))
        return summed.transpose(0, 1)


class TextEncoder(nn.Module):
    """Layers that encode the text alone, then layers that also attend to image tokens."""

    def __init__(self, config: TextConfig, words: int, pad: int) -> None:
        super().__init__()
        self.pad = pad
        self.recomputes = False  # the activations of layers, in backward
        alone = config.layers - config.fusion_layers
        self.embeddings = Embeddings(config, words, pad)
        self.text_layers = nn.ModuleList(
            _layer(nn.TransformerEncoderLayer, config) for _ in range(alone)
        )
        self.fusion_layers = nn.ModuleList(
            _layer(nn.TransformerDecoderLayer, config) for _ in range(config.fusion_layers)
        )

    def padding(self, texts: Tensor) -> Tensor:
        """(b, L) bool, true where the unmasked ids (b, L) are padding."""
        return texts == self.pad

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        """(b, L, C) token states of the text alone.

        `ids` (b, L) may be masked. `padding` (b, L) comes from the unmasked ids: masking may put
        the padding id in the place of a word, which is then still attended to, as in BERT.
        """
        hidden: Tensor = self.embeddings(ids)
        for layer in self.text_layers:
            hidden = self._through(layer, hidden, src_key_padding_mask=padding)
        return hidden.transpose(0, 1)

    def fuse(self, text_tokens: Tensor, padding: Tensor, image_tokens: Tensor) -> Tensor:
        """(b, L, C) token states of texts fused with images.

        Takes the output of `forward` (b, L, C), its padding (b, L), and image tokens (b, N, C).
        """
        hidden, image = text_tokens.transpose(0, 1), image_tokens.transpose(0, 1)
        for layer in self.fusion_layers:
            hidden = self._through(layer, hidden, image, tgt_key_padding_mask=padding)
        return hidden.transpose(0, 1)

    def _through(self, layer: nn.Module, *inputs: Tensor, **masks: Tensor) -> Tensor:
        """The output of a layer, whose activations may be recomputed in backward."""
        hidden: Tensor
        if self.recomputes and torch.is_grad_enabled():
            # Imported here: it loads torch._dynamo, which takes a second.
            from torch.utils.checkpoint import checkpoint

            hidden = checkpoint(partial(layer, **masks), *inputs, use_reentrant=False)
        else:
            hidden = layer(*inputs, **masks)
        return hidden


def _layer(kind: type[Layer], config: TextConfig) -> Layer:
    """A layer for the text alone (encoder), or one that also attends to the image (decoder)."""
    layer = kind(
        config.width,
        config.heads,
        config.feed_forward,
        config.dropout,
        activation=gelu,
        layer_norm_eps=EPSILON,
    )
    layer.dropout.p = 0.0  # BERT has no dropout between the two halves of the feed-forward
    return layer
