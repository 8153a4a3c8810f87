"""Texts that stand in no caption: token embeddings, and how they are made of a memory. Torch-free.

Shapes: K texts, L tokens, W channels of a token's embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vlcpctl.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PseudoTexts:
    """Token embeddings of texts, and where each ends."""

    embeddings: Tensor  # (K, L, W)
    ends: Tensor  # (K,)


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """How a frozen model makes negative texts of a mini-batch of the memory (IncCLIP, eq. 1)."""

    texts: int  # K, of each mini-batch
    pairs: int  # of a mini-batch; 0: as many as are trained on at once
    low: float  # s_min, the similarity that a text has at least to the images
    high: float  # s_max
    iterations: int
    rate: float  # of the gradient descent

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.high <= 1:
            raise UsageError(
                f"similarities from {self.low} to {self.high} hold no text; "
                "the least must be below the greatest, both in [-1, 1]"
            )
        for name, least in (("texts", 1), ("pairs", 0), ("iterations", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{getattr(self, name)} {name} to invert: at least {least}")
        if not self.rate > 0:
            raise UsageError(f"the rate of the inversion must be above 0, not {self.rate}")
