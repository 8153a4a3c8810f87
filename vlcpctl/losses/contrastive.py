"""The symmetric image-text contrastive loss (InfoNCE or sigmoid), the base loss of most methods.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

from torch import Tensor

from vlcpctl.core.method import RowLoss
from vlcpctl.losses.rows import ALL, SOFTMAX, similarities


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
