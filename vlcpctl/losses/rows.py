"""The rows of a loss that one process computes: those of its own pairs, against all pairs.

A loss that averages over the rows of similarity matrices is a sum over processes of such parts.
None of them holds a whole (B, B) matrix then. Shapes: B pairs, b of them own, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

ALL = slice(None)


def similarities(
    image_BD: Tensor, text_BD: Tensor, scale: Tensor | float, own: slice = ALL
) -> tuple[Tensor, Tensor]:
    """Scaled similarities of the own images to all texts, and the own texts to all images, (b, B).

    >>> image, text = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> similarities(image, text, 2.0, slice(1, 2))
    (tensor([[0., 0.]]), tensor([[2., 0.]]))
    """
    if own == ALL:
        logits_BB = scale * image_BD @ text_BD.T
        return logits_BB, logits_BB.T
    return scale * image_BD[own] @ text_BD.T, scale * text_BD[own] @ image_BD.T


def mean_cross_entropy(logits_bK: Tensor, count: int, own: slice = ALL) -> Tensor:
    """Cross-entropy of the own of `count` rows with the candidates of their number, over `count`.

    Summed over processes it is the mean over all rows; there may be further candidates.
    """
    labels_B = torch.arange(count, device=logits_bK.device)
    if own == ALL:
        return cross_entropy(logits_bK, labels_B)
    return cross_entropy(logits_bK, labels_B[own], reduction="sum") / count
