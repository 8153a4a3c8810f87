"""Topology preservation of CTP: distil the previous model's similarities between samples.

Shapes: B pairs, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vlcpctl.losses.distillation import row_kl

# CTP section 3.3: a sample's similarity to itself is not informative. This value in its place makes
# its share of the softmax 0.
SUPPRESSED = -1000.0


def cross_modal(
    image_BD: Tensor,
    text_BD: Tensor,
    old_image_BD: Tensor,
    old_text_BD: Tensor,
    scale: Tensor | float,
) -> Tensor:
    """KL from old to new image-to-text and text-to-image similarities, a scalar (CTP eqs. 6-7).

    The paper writes a cross-entropy, which has the same gradient.
    """
    new_BB = scale * image_BD @ text_BD.T
    old_BB = scale * old_image_BD @ old_text_BD.T
    return (row_kl(old_BB, new_BB) + row_kl(old_BB.T, new_BB.T)) / 2


def same_modal(
    image_BD: Tensor,
    text_BD: Tensor,
    old_image_BD: Tensor,
    old_text_BD: Tensor,
    scale: Tensor | float,
    *,
    suppresses_diagonal: bool = True,
) -> Tensor:
    """KL from old to new similarities within images and within texts, a scalar (CTP eqs. 8-9).

    `suppresses_diagonal` leaves out each sample's similarity to itself. The paper writes a
    cross-entropy, which has the same gradient.
    """
    kept = [
        row_kl(
            scale * _similarities(old_BD, suppresses_diagonal=suppresses_diagonal),
            scale * _similarities(new_BD, suppresses_diagonal=suppresses_diagonal),
        )
        for new_BD, old_BD in ((image_BD, old_image_BD), (text_BD, old_text_BD))
    ]
    return (kept[0] + kept[1]) / 2


def _similarities(features_BD: Tensor, *, suppresses_diagonal: bool) -> Tensor:
    similarities_BB = features_BD @ features_BD.T
    if not suppresses_diagonal:
        return similarities_BB
    own = torch.eye(len(features_BD), dtype=torch.bool, device=features_BD.device)
    return similarities_BB.masked_fill(own, SUPPRESSED)
