"""The symmetric image-text contrastive loss (InfoNCE or sigmoid), the base loss of most methods.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vlcpctl.core.method import RowLoss
from vlcpctl.losses.rows import ALL, SOFTMAX, matches, similarities


def image_text(
    image_BD: Tensor,
    text_BD: Tensor,
    scale: Tensor | float,
    own: slice = ALL,
    *,
    groups_B: Tensor | None = None,
    rows: RowLoss = SOFTMAX,
) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image loss, two scalars: with a softmax, CTP eq. 1.

    Features are (B, D) of unit length; `scale` is 1 / temperature. With `own`, only the rows of
    these pairs: parts of all processes add up to the whole. With `groups_B`, the groups of the
    pairs, members of a group are not negatives of each other. `rows` is `Run.row_loss`.

    >>> import torch
    >>> eye = torch.eye(2)
    >>> round(image_text(eye, eye, 10.0)[0].item(), 6)
    4.5e-05
    """
    to_text, to_image = similarities(image_BD, text_BD, scale, own, groups_B=groups_B)
    count = len(image_BD)
    i2t = rows(to_text, count, own)
    return i2t, i2t if rows.is_symmetric else rows(to_image, count, own)


def smoothed(
    logits_bB: Tensor, own: slice = ALL, *, smoothing: float, groups_B: Tensor | None = None
) -> Tensor:
    """The mean over B rows of the smoothed cross-entropy to each row's pair (Wu et al., 2025).

    The target of a row has 1 - smoothing for its pair, in equal shares for all members of its
    group, and smoothing in equal shares for all B columns. With `own`, the logits (b, B) have only
    the rows of these pairs; parts of all processes add up.

    >>> round(smoothed(torch.eye(2) * 10, smoothing=0.2).item(), 4)  # 0.1 of what is not the pair
    1.0
    """
    count = logits_bB.shape[1]
    target_bB = torch.eye(count, dtype=logits_bB.dtype, device=logits_bB.device)[own]
    if groups_B is not None:
        target_bB = target_bB + matches(groups_B, own)
        target_bB = target_bB / target_bB.sum(1, keepdim=True)
    total = cross_entropy(logits_bB, target_bB, reduction="sum", label_smoothing=smoothing)
    return total / count
