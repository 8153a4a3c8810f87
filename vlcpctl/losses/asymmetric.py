"""Asymmetric contrastive loss of Co2L: only some pairs are anchors, all are candidates.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vlcpctl.core.device_copies import to_device
from vlcpctl.losses.rows import ALL, similarities

LEFT_OUT = -100  # the label that cross_entropy ignores


def image_text(
    pairs: tuple[Tensor, Tensor],
    scale: Tensor | float,
    anchors_B: Tensor,
    *,
    average: str = "batch",
    own: slice = ALL,
    groups_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image cross-entropy over the anchors, two scalars.

    `pairs` are images and texts (B, D) of unit length; `anchors_B` is true for anchors. Each
    direction is divided by B (`average="batch"`: Co2L, section 4.1, up to that constant) or by the
    number of anchors (`"anchors"`). Without anchors both are 0. With `own`, only the rows of these
    pairs: parts of all processes add up. With `groups_B`, the groups of the pairs, members of a
    group are not negatives of each other.

    >>> same = torch.ones(2, 1)  # two equal candidates: log 2 for every anchor
    >>> sides = image_text((same, same), 1.0, torch.tensor([True, False]))
    >>> [round(side.item(), 4) for side in sides]
    [0.3466, 0.3466]
    """
    image_BD, text_BD = pairs
    places_B = torch.arange(len(image_BD), device=image_BD.device)
    labels_B = torch.where(to_device(anchors_B, image_BD.device), places_B, LEFT_OUT)
    count = len(labels_B) if average == "batch" else max(1, int(anchors_B.sum()))
    sums = [
        cross_entropy(logits_bB, labels_B[own], ignore_index=LEFT_OUT, reduction="sum")
        for logits_bB in similarities(image_BD, text_BD, scale, own, groups_B=groups_B)
    ]
    return sums[0] / count, sums[1] / count
