"""A part of a batch without a model: tokens are given by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vlcpctl.core.batch import Tokens, Weights


@dataclass
class FakePart:
    """What a method sees; `old` and `slow` stand for the previous and the momentum model."""

    pairs: int
    masked: int
    old: Tokens | None = None
    slow: Tokens | None = None

    def previous(self) -> Tokens:
        assert self.old is not None
        return self.old

    def under(self, weights: Weights) -> Tokens:
        assert self.slow is not None
        return self.slow


def tokens(logits: Tensor, labels: Tensor, *sides: Tensor) -> Tokens:
    """Tokens of logits (b, L, V) and labels (b, L), with image and text tokens if given."""
    at = labels >= 0
    image, text = sides or (torch.empty(0), torch.empty(0))
    return Tokens(
        image=image, text=text, fused=torch.empty(0), logits=logits[at], labels=labels[at]
    )
