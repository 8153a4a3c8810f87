"""The rows of a loss that one process computes: those of its own pairs, against all pairs.

A loss that averages over the rows of similarity matrices is a sum over processes of such parts.
None of them holds a whole (B, B) matrix then. `Softmax` and `Sigmoid` are the base loss of a row,
and `row_loss` is the one place that chooses. Shapes: B pairs, b of them own,
D channels, K candidates of a row: the B pairs, then any others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from vlcpctl.core.devices import to_device

ALL = slice(None)
LEFT_OUT = -100  # the label that cross_entropy ignores


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


@final
@dataclass(frozen=True)
class Softmax:
    """Each row is a choice among its candidates: the cross-entropy of InfoNCE.

    >>> round(Softmax()(torch.eye(2) * 10, 2).item(), 6)
    4.5e-05
    """

    is_symmetric: ClassVar[bool] = False
    max_log_scale: ClassVar[float] = math.log(100)  # a learned temperature stays above 0.01 (CLIP)

    def __call__(
        self, logits_bK: Tensor, count: int, own: slice = ALL, *, anchors_B: Tensor | None = None
    ) -> Tensor:
        """See `core.method.RowLoss`."""
        if anchors_B is not None:
            places_B = torch.arange(len(anchors_B), device=logits_bK.device)
            labels_B = torch.where(to_device(anchors_B, logits_bK.device), places_B, LEFT_OUT)
            total = cross_entropy(logits_bK, labels_B[own], ignore_index=LEFT_OUT, reduction="sum")
            return total / count
        labels_B = torch.arange(count, device=logits_bK.device)
        if own == ALL:
            return cross_entropy(logits_bK, labels_B)
        return cross_entropy(logits_bK, labels_B[own], reduction="sum") / count


@final
@dataclass(frozen=True)
class Sigmoid:
    """Each pair of a row and a candidate is judged by itself, true or not (Zhai et al., 2023).

    The term of a pair is -log sigmoid(z (logit + bias)), with z = 1 for the pair of the row itself
    and -1 for all others; a candidate at -inf adds nothing. The bias is a weight of the model.

    >>> round(Sigmoid(torch.tensor(-5.0))(torch.eye(2) * 10, 2).item(), 6)  # 2 softplus(-5)
    0.013431
    """

    bias: Tensor  # ()
    is_symmetric: ClassVar[bool] = True
    # No bound: published weights of SigLIP have a temperature of 1/112, see open_clip #746.
    max_log_scale: ClassVar[float] = math.inf

    def __call__(
        self, logits_bK: Tensor, count: int, own: slice = ALL, *, anchors_B: Tensor | None = None
    ) -> Tensor:
        """See `core.method.RowLoss`."""
        signed_bK = logits_bK + self.bias
        signed_bK.diagonal(own.start or 0).neg_()
        terms_bK = softplus(signed_bK)
        if anchors_B is not None:
            terms_bK = terms_bK * to_device(anchors_B, logits_bK.device)[own, None]
        return terms_bK.sum() / count


SOFTMAX = Softmax()


def row_loss(weights: Mapping[str, Tensor]) -> Softmax | Sigmoid:
    """The loss of a row that a model with these weights is trained with: sigmoid with a bias."""
    bias = weights.get("logit_bias")
    return SOFTMAX if bias is None else Sigmoid(bias)
