"""What stands on a fusion model's tokens: projections into the shared space, and guesses of words.

Shapes: b samples, C channels of a token, D of the shared space, m tokens, V words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, normalize

from vlcpctl.models.fusion.text_encoder import EPSILON


class CosineLinear(nn.Module):
    """Cosines of the input with rows of a matrix, times a learned scale (LUCIR, eq. 5)."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        # As torch draws the matrix of a linear layer.
        self.weight = nn.Parameter(nn.Linear(width, dim, bias=False).weight.detach())
        self.sigma = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """(b, D) of (b, C)."""
        cosines = linear(normalize(features, dim=-1), normalize(self.weight, dim=-1))
        return self.sigma * cosines


class WordHead(nn.Module):
    """BERT's masked-language head; the embeddings of words are its last matrix."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens: Tensor, embeddings: Tensor) -> Tensor:
        """(m, V) of (m, C) tokens and the (V, C) embeddings of words."""
        return linear(self.norm(gelu(self.dense(tokens))), embeddings, self.bias)


def projection(kind: str, width: int, dim: int) -> nn.Module:
    """A projection of [CLS] into the shared space."""
    return CosineLinear(width, dim) if kind == "cosine" else nn.Linear(width, dim)
