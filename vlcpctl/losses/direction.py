"""Distil the direction of features: one minus the cosine between old and new.

Shapes: B pairs, D channels of the shared space, N tokens, C channels of a token.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize


def cosine_distance(new_BD: Tensor, old_BD: Tensor) -> Tensor:
    """One minus the cosine of each sample's features, (B,) (LUCIR, eq. 6).

    >>> import torch
    >>> cosine_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])).item()
    1.0
    """
    return 1 - cosine_similarity(new_BD, old_BD, dim=1)


def profile_cosine_distance(new_BNC: Tensor, old_BNC: Tensor) -> Tensor:
    """One minus the cosine of each channel's profile over tokens, mean over channels, (B,).

    The CTP authors' variant of LUCIR: tokens are scaled to unit length, and the cosine is taken
    along dimension 1, the tokens.
    """
    new, old = normalize(new_BNC, dim=-1), normalize(old_BNC, dim=-1)
    return (1 - cosine_similarity(new, old, dim=1)).mean(1)
