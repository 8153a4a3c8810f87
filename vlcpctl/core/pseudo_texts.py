"""Pseudo texts (IncCLIP): negative texts generated as token embeddings. Imports no torch.

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
    """Token embeddings of pseudo texts, and the position of the last token of each."""

    embeddings: Tensor  # (K, L, W)
    ends: Tensor  # (K,)


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """Settings for generating negative texts from a mini-batch of earlier pairs (IncCLIP, eq. 1).

    A frozen model optimises token embeddings until each text is similar to the images, but not too
    similar. Raises UsageError for settings that make no sense.
    """

    texts: int  # K, the texts generated per mini-batch
    pairs: int  # the pairs of a mini-batch; 0: as many as the batch size
    low: float  # s_min, the lower bound of a text's similarity to the images
    high: float  # s_max, the upper bound
    iterations: int  # of gradient descent
    rate: float  # the learning rate of gradient descent

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.high <= 1:
            raise UsageError(
                f"no text has a similarity from {self.low} to {self.high}; "
                "the lower bound must be below the upper bound, both in [-1, 1]"
            )
        for name, least in (("texts", 1), ("pairs", 0), ("iterations", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"inversion: {name} must be at least {least}, not {getattr(self, name)}"
                )
        if not self.rate > 0:
            raise UsageError(f"inversion: rate must be above 0, not {self.rate}")
