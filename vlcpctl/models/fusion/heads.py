"""Heads of a fusion model: projections into the shared space, and the prediction of words.

Shapes: b samples, C channels of a token, D channels of the shared space, m tokens, V words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, normalize

from vlcpctl.models.fusion.text_encoder import EPSILON


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


def projection(kind: str, width: int, dim: int) -> nn.Module:
    """A projection of the [CLS] state, (b, C) to (b, D); `kind` is linear or cosine."""
    return CosineLinear(width, dim) if kind == "cosine" else nn.Linear(width, dim)
