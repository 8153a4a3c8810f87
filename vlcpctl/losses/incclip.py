"""IncCLIP (Yan et al., 2022): generating negative texts, and the loss that uses them.

Shapes: B image-text pairs, K negative texts without images, T = B + K texts, D channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax


def margins(scores_BK: Tensor, low: float, high: float) -> Tensor:
    """How far each text's similarities are outside [low, high], (K,), averaged over images (eq. 1).

    `scores_BK` are the cosines of images and texts.

    >>> margins(torch.tensor([[0.0, 0.3], [0.5, 0.3]]), 0.2, 0.4)
    tensor([0.1500, 0.0000])
    """
    return ((low - scores_BK).clamp_min(0) + (scores_BK - high).clamp_min(0)).mean(0)


def logits(
    image_BD: Tensor, text_BD: Tensor, pseudo_KD: Tensor | None, scale: Tensor | float
) -> Tensor:
    """Scaled similarities (B, T) of images to the texts of the batch, then to the negative texts.

    Features are of unit length; `scale` is 1 / temperature.

    >>> logits(torch.eye(2), torch.eye(2), torch.ones(1, 2), 2.0)
    tensor([[2., 0., 2.],
            [0., 2., 2.]])
    """
    text_TD = text_BD if pseudo_KD is None else torch.cat([text_BD, pseudo_KD])
    return scale * image_BD @ text_TD.T


def contrast(logits_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image cross-entropy, two scalars (eqs. 2-5).

    Negative texts are candidates for the images, but not queries.

    >>> round(contrast(torch.eye(2) * 9)[0].item(), 5)
    0.00012
    """
    size = len(logits_BT)
    labels_B = torch.arange(size, device=logits_BT.device)
    return cross_entropy(logits_BT, labels_B), cross_entropy(logits_BT[:, :size].T, labels_B)


def distil(new_BT: Tensor, old_BT: Tensor, *, is_reversed: bool = False) -> tuple[Tensor, Tensor]:
    """KL divergence of rows, and of columns of texts with images, two scalars (eqs. 7-8).

    From the current distribution to the previous one, as printed; `is_reversed` swaps the two.
    """
    size = len(new_BT)
    student = (new_BT, new_BT[:, :size].T)
    teacher = (old_BT, old_BT[:, :size].T)
    one, other = (teacher, student) if is_reversed else (student, teacher)
    return _divergence(one[0], other[0]), _divergence(one[1], other[1])


def _divergence(one: Tensor, other: Tensor) -> Tensor:
    """Mean over rows of KL(softmax(one) || softmax(other)), with gradient for both."""
    one, other = log_softmax(one, 1), log_softmax(other, 1)
    return (one.exp() * (one - other)).sum(1).mean()


@torch.no_grad()
def clip_norms_(weights: Mapping[str, Tensor], norms: Mapping[str, Tensor], factor: float) -> None:
    """Scale down, in place, weights longer than `factor` times their given norm (section 3.3).

    A weight whose given norm is 0 is not clipped: it could never leave zero.

    >>> weights = {"w": torch.tensor([[3.0, 4.0]])}
    >>> clip_norms_(weights, {"w": torch.tensor(2.0)}, 1.5)
    >>> weights["w"]
    tensor([[1.8000, 2.4000]])
    """
    for name, norm in norms.items():
        longest, length = factor * norm, weights[name].norm()
        is_long = (longest > 0) & (longest < length)
        # Decided on the weights' device, so that the CPU does not wait for the GPU.
        weights[name].mul_(torch.where(is_long, longest / length, torch.ones_like(length)))
