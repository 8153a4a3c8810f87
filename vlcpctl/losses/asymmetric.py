"""Asymmetric contrast of Co2L: only some pairs of a batch are anchors, all are candidates.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LEFT_OUT = -100  # the label that cross_entropy passes over


def image_text(
    image_BD: Tensor,
    text_BD: Tensor,
    scale: Tensor | float,
    anchors_B: Tensor,
    *,
    average: str = "batch",
) -> tuple[Tensor, Tensor]:
    """Cross-entropies of both directions, of unit features, over the pairs that are anchors.

    Each side is divided by B (`batch`: Co2L, section 4.1, up to that constant) or by the number of
    anchors (`anchors`). Without any anchor it is 0.

    >>> same = torch.ones(2, 1)  # two candidates alike: log 2 for every anchor
    >>> sides = image_text(same, same, 1.0, torch.tensor([True, False]))
    >>> [round(side.item(), 4) for side in sides]
    [0.3466, 0.3466]
    """
    logits_BB = scale * image_BD @ text_BD.T
    places_B = torch.arange(len(logits_BB), device=logits_BB.device)
    labels_B = torch.where(anchors_B.to(logits_BB.device), places_B, LEFT_OUT)
    count = len(logits_BB) if average == "batch" else max(1, int((labels_B >= 0).sum()))
    sums = [
        cross_entropy(logits, labels_B, ignore_index=LEFT_OUT, reduction="sum")
        for logits in (logits_BB, logits_BB.T)
    ]
    return sums[0] / count, sums[1] / count
