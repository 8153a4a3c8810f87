"""The fusion model: it encodes images and texts separately, then the text fused with the image.

Shapes: b pairs, N tokens of an image (the first is [CLS]), L tokens of a text, C channels of a
token, D channels of the shared space, m masked tokens, V words in the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, normalize

from vlcpctl.models.fusion.configuration import FusionConfig
from vlcpctl.models.fusion.image_encoder import new_image_encoder
from vlcpctl.models.fusion.text_encoder import EPSILON, TextEncoder

START_TEMPERATURE = 0.07
BERT_WIDTH, BERT_DEVIATION = 768, 0.02


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The embeddings, token states and word predictions of a fusion model for b pairs."""

    image: Tensor  # (b, D), raw projection
    text: Tensor  # (b, D), raw projection
    image_tokens: Tensor  # (b, N, C)
    text_tokens: Tensor  # (b, L, C), of the text alone
    fused: Tensor  # (b, C), the [CLS] state of image and text together
    logits: Tensor  # (m, V), predictions at the given positions, in row-major order


class CosineLinear(nn.Module):
    """Cosine similarities to the rows of a matrix, times a learned scale (LUCIR, eq. 5)."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        # Initialised as torch initialises a linear layer.
        self.weight = nn.Parameter(nn.Linear(width, dim, bias=False).weight.detach())
        self.sigma = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """(b, D) scaled cosine similarities of features (b, C)."""
        cosines = linear(normalize(features, dim=-1), normalize(self.weight, dim=-1))
        return self.sigma * cosines


class WordHead(nn.Module):
    """BERT's masked-language head; its output matrix is tied to the word embeddings."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens: Tensor, embeddings: Tensor) -> Tensor:
        """(m, V) logits of token states (m, C), given the word embeddings (V, C)."""
        return linear(self.norm(gelu(self.dense(tokens))), embeddings, self.bias)


class FusionModel(nn.Module):
    """An image encoder, a text encoder that fuses both, two projections and a word head (ALBEF)."""

    def __init__(self, config: FusionConfig, *, words: int, pad: int) -> None:
        super().__init__()
        width = config.text_cfg.width
        self.image_encoder = new_image_encoder(config.image_cfg)
        self.text_encoder = TextEncoder(config.text_cfg, words, pad)
        self.word_head = WordHead(width, words)
        _draw([self.image_encoder, self.text_encoder, self.word_head], width)
        nn.init.zeros_(self.text_encoder.embeddings.words.weight[pad])
        self.image_projection = _projection(config.heads, width, config.embed_dim)
        self.text_projection = _projection(config.heads, width, config.embed_dim)
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(START_TEMPERATURE)))

    def sides(
        self, images: Tensor | None, texts: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Raw projections (b, D) of images (b, 3, H, W) and token ids (b, L); None for None."""
        image = None if images is None else self._image(self.image_encoder.forward_features(images))
        text = None if texts is None else self._text(self._text_tokens(texts))
        return image, text

    def fused(self, images: Tensor, texts: Tensor) -> Tensor:
        """The [CLS] state (b, C) of texts (b, L) fused with images (b, 3, H, W)."""
        image_tokens = self.image_encoder.forward_features(images)
        padding = self.text_encoder.padding(texts)
        tokens = self.text_encoder.fuse(self._text_tokens(texts), padding, image_tokens)
        return tokens[:, 0]

    def outputs(
        self,
        images: Tensor,
        texts: Tensor,
        fused_ids: Tensor,
        at: Tensor | tuple[Tensor, Tensor] | None,
    ) -> Outputs:
        """All outputs, with one pass over the images; `at` is as in `FusionEncoder.outputs`.

        `texts` (b, L) are unmasked; `fused_ids` (b, L) are the same texts, masked or not.
        """
        image_tokens = self.image_encoder.forward_features(images)
        padding = self.text_encoder.padding(texts)
        text_tokens = self.text_encoder(texts, padding)
        start = text_tokens if fused_ids is texts else self.text_encoder(fused_ids, padding)
        tokens = self.text_encoder.fuse(start, padding, image_tokens)
        selected = tokens[:0, 0] if at is None else tokens[at]
        return Outputs(
            image=self._image(image_tokens),
            text=self._text(text_tokens),
            image_tokens=image_tokens,
            text_tokens=text_tokens,
            fused=tokens[:, 0],
            logits=self.word_head(selected, self.text_encoder.embeddings.words.weight),
        )

    def checkpoint_gradients(self) -> None:
        """Recompute the activations of the layers in backward, instead of storing them."""
        self.image_encoder.set_grad_checkpointing()
        self.text_encoder.recomputes = True

    def _text_tokens(self, texts: Tensor) -> Tensor:
        tokens: Tensor = self.text_encoder(texts, self.text_encoder.padding(texts))
        return tokens

    def _image(self, tokens: Tensor) -> Tensor:
        projected: Tensor = self.image_projection(tokens[:, 0])
        return projected

    def _text(self, tokens: Tensor) -> Tensor:
        projected: Tensor = self.text_projection(tokens[:, 0])
        return projected


def _projection(kind: str, width: int, dim: int) -> nn.Module:
    """A projection of the [CLS] state, (b, C) to (b, D); `kind` is linear or cosine."""
    return CosineLinear(width, dim) if kind == "cosine" else nn.Linear(width, dim)


@torch.no_grad()
def _draw(modules: list[nn.Module], width: int) -> None:
    """Initialise matrices from a normal distribution, and biases with 0.

    At BERT's width the standard deviation is BERT's 0.02. A narrower model gets a larger one, so
    that the variance through a layer is the same; with 0.02 it would hardly learn from scratch.
    """
    deviation = BERT_DEVIATION * math.sqrt(BERT_WIDTH / width)
    for name, weight in (found for module in modules for found in module.named_parameters()):
        if weight.ndim > 1:
            nn.init.normal_(weight, std=deviation)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
