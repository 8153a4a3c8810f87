"""Topology preservation of CTP: distil the previous model's similarities between samples.

The scale (1 / temperature) is the current model's, for both sides. A learned one has a gradient
through the current similarities alone: the previous model's are a constant target. CTP's own
temperature is fixed, so that its paper does not say.

Shapes: B pairs, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vlcpctl.losses.distillation import row_kl
from vlcpctl.losses.rows import ALL, similarities

Sides = tuple[Tensor, Tensor]  # images and texts, (B, D) each

# CTP section 3.3: a sample's similarity to itself is not informative. This value in its place makes
# its share of the softmax 0.
SUPPRESSED = -1000.0


def cross_modal(new: Sides, old: Sides, scale: Tensor | float, *, own: slice = ALL) -> Tensor:
    """KL from old to new image-to-text and text-to-image similarities, a scalar (CTP eqs. 6-7).

    The paper writes a cross-entropy, which has the same gradient. With `own`, only the rows of
    these pairs: parts of all processes add up.
    """
    fixed = _fixed(scale)
    pairs = zip(similarities(*new, scale, own), similarities(*old, fixed, own), strict=True)
    to_text, to_image = (row_kl(then, now, len(new[0])) for now, then in pairs)
    return (to_text + to_image) / 2


def same_modal(
    new: Sides,
    old: Sides,
    scale: Tensor | float,
    *,
    suppresses_diagonal: bool = True,
    own: slice = ALL,
) -> Tensor:
    """KL from old to new similarities within images and within texts, a scalar (CTP eqs. 8-9).

    `suppresses_diagonal` leaves out each sample's similarity to itself. The paper writes a
    cross-entropy, which has the same gradient. With `own`, only the rows of these pairs.
    """
    fixed = _fixed(scale)
    kept = [
        row_kl(
            fixed * _similarities(old_BD, own, suppresses_diagonal=suppresses_diagonal),
            scale * _similarities(new_BD, own, suppresses_diagonal=suppresses_diagonal),
            len(new_BD),
        )
        for new_BD, old_BD in zip(new, old, strict=True)
    ]
    return (kept[0] + kept[1]) / 2


def _fixed(scale: Tensor | float) -> Tensor | float:
    return scale.detach() if isinstance(scale, Tensor) else scale


def _similarities(features_BD: Tensor, own: slice, *, suppresses_diagonal: bool) -> Tensor:
    similarities_bB = features_BD[own] @ features_BD.T
    if not suppresses_diagonal:
        return similarities_bB
    places_B = torch.arange(len(features_BD), device=features_BD.device)
    return similarities_bB.masked_fill(places_B[own, None] == places_B, SUPPRESSED)
