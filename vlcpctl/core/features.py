"""Features of a batch: projections, and the same scaled to unit length."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.method import Features


def as_features(
    raw_image: Tensor, raw_text: Tensor, scale: Tensor, raw_pseudo: Tensor | None = None
) -> Features:
    """Features from raw projections (B, D) and 1 / temperature (), with texts without image (K, D).

    The unit-length forms are computed here, and gradients flow through both.
    """
    return Features(
        image=normalize(raw_image, dim=-1),
        text=normalize(raw_text, dim=-1),
        raw_image=raw_image,
        raw_text=raw_text,
        scale=scale,
        pseudo=None if raw_pseudo is None else normalize(raw_pseudo, dim=-1),
    )
