"""The symmetric image-text contrastive loss (InfoNCE), the base loss of most methods.

Shapes: B pairs, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def image_text(image_BD: Tensor, text_BD: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image cross-entropy, two scalars (CTP eq. 1).

    Features are (B, D) of unit length; `scale` is 1 / temperature.

    >>> eye = torch.eye(2)
    >>> round(image_text(eye, eye, 10.0)[0].item(), 6)
    4.5e-05
    """
    logits_BB = scale * image_BD @ text_BD.T
    labels_B = torch.arange(len(logits_BB), device=logits_BB.device)
    return cross_entropy(logits_BB, labels_B), cross_entropy(logits_BB.T, labels_B)
