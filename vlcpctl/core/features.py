"""Projections and their unit-length forms."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.method import Features


def as_features(
    raw_image: Tensor, raw_text: Tensor, scale: Tensor, raw_pseudo: Tensor | None = None
) -> Features:
    """Projections with their unit-length forms."""
    return Features(
        image=normalize(raw_image, dim=-1),
        text=normalize(raw_text, dim=-1),
        raw_image=raw_image,
        raw_text=raw_text,
        scale=scale,
        pseudo=None if raw_pseudo is None else normalize(raw_pseudo, dim=-1),
    )
