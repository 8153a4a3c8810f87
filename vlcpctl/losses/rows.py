"""The rows of a loss that one process computes: those of its own pairs, against all pairs.

A loss that averages over the rows of similarity matrices is a sum over processes of such parts.
None of them holds a whole (B, B) matrix then. Shapes: B pairs, b of them own, D channels,
K candidates of a row: the B pairs, then any others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

ALL = slice(None)


def similarities(
    image_BD: Tensor,
    text_BD: Tensor,
    scale: Tensor | float,
    own: slice = ALL,
    *,
    groups_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled similarities of the own images to all texts, and the own texts to all images, (b, B).

    With `groups_B`, those between different pairs of one group are -inf.

    >>> image, text = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> similarities(image, text, 2.0, slice(1, 2))
    (tensor([[0., 0.]]), tensor([[2., 0.]]))
    """
    if own == ALL:
        logits_BB = scale * image_BD @ text_BD.T
        _leave_out_(logits_BB, groups_B, own)
        return logits_BB, logits_BB.T
    to_text, to_image = scale * image_BD[own] @ text_BD.T, scale * text_BD[own] @ image_BD.T
    _leave_out_(to_text, groups_B, own)
    _leave_out_(to_image, groups_B, own)
    return to_text, to_image


def matches(groups_B: Tensor, own: slice = ALL, others_K: Tensor | None = None) -> Tensor:
    """True where a candidate is another member of the group of a row, (b, K) bool.

    The groups (B,) of the batch are compared with themselves, and with the groups of further
    candidates. The pair of the row itself is False: it is the positive. A device is not waited for.

    >>> matches(torch.tensor([4, 7, 4]), slice(0, 2), torch.tensor([7, 4]))
    tensor([[False, False,  True, False,  True],
            [False, False, False,  True, False]])
    """
    groups_K = groups_B if others_K is None else torch.cat([groups_B, others_K])
    found_bK = groups_B[own, None] == groups_K
    found_bK.diagonal(own.start or 0).fill_(False)
    return found_bK


def _leave_out_(logits_bB: Tensor, groups_B: Tensor | None, own: slice) -> None:
    """Set the logits of matches to -inf, which the gradient of a product does not need: no copy."""
    if groups_B is not None:
        logits_bB.masked_fill_(matches(groups_B, own), -math.inf)


def mean_cross_entropy(logits_bK: Tensor, count: int, own: slice = ALL) -> Tensor:
    """Cross-entropy of the own of `count` rows with the candidates of their number, over `count`.

    Summed over processes it is the mean over all rows; there may be further candidates.
    """
    labels_B = torch.arange(count, device=logits_bK.device)
    if own == ALL:
        return cross_entropy(logits_bK, labels_B)
    return cross_entropy(logits_bK, labels_B[own], reduction="sum") / count
