"""The symmetric image-text contrastive loss (InfoNCE), the base loss of most methods.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

from torch import Tensor

from vlcpctl.losses.rows import ALL, mean_cross_entropy, similarities


def image_text(
    image_BD: Tensor,
    text_BD: Tensor,
    scale: Tensor | float,
    own: slice = ALL,
    *,
    groups_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image cross-entropy, two scalars (CTP eq. 1).

    Features are (B, D) of unit length; `scale` is 1 / temperature. With `own`, only the rows of
    these pairs: parts of all processes add up to the whole. With `groups_B`, the groups of the
    pairs, members of a group are not negatives of each other.

    >>> import torch
    >>> eye = torch.eye(2)
    >>> round(image_text(eye, eye, 10.0)[0].item(), 6)
    4.5e-05
    """
    to_text, to_image = similarities(image_BD, text_BD, scale, own, groups_B=groups_B)
    count = len(image_BD)
    return mean_cross_entropy(to_text, count, own), mean_cross_entropy(to_image, count, own)
