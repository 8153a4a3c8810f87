"""IncCLIP (Yan et al., 2022): negative texts of bounded similarity, and training against them.

Shapes: B images with their texts, T = B + K texts of which the last K have no image.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax


def margins(scores_BK: Tensor, low: float, high: float) -> Tensor:
    """(K,) by how much each text's similarities leave [low, high], over the images (eq. 1).

    >>> margins(torch.tensor([[0.0, 0.3], [0.5, 0.3]]), 0.2, 0.4)
    tensor([0.1500, 0.0000])
    """
    return ((low - scores_BK).clamp_min(0) + (scores_BK - high).clamp_min(0)).mean(0)


def logits(
    image_BD: Tensor, text_BD: Tensor, pseudo_KD: Tensor | None, scale: Tensor | float
) -> Tensor:
    """(B, T) similarities of unit features to the texts of the batch, then to those without image.

    >>> logits(torch.eye(2), torch.eye(2), torch.ones(1, 2), 2.0)
    tensor([[2., 0., 2.],
            [0., 2., 2.]])
    """
    text_TD = text_BD if pseudo_KD is None else torch.cat([text_BD, pseudo_KD])
    return scale * image_BD @ text_TD.T


def contrast(logits_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Each image finds its text among all, each of their texts its image (eqs. 2-5).

    >>> round(contrast(torch.eye(2) * 9)[0].item(), 5)
    0.00012
    """
    size = len(logits_BT)
    labels_B = torch.arange(size, device=logits_BT.device)
    return cross_entropy(logits_BT, labels_B), cross_entropy(logits_BT[:, :size].T, labels_B)


def distil(new_BT: Tensor, old_BT: Tensor, *, is_reversed: bool = False) -> tuple[Tensor, Tensor]:
    """How far the rows, and the columns of texts with an image, are from the old ones (eqs. 7-8).

    As printed, from the current distribution to the previous one; reversed, the other way round.
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
    """Scale back, in place, what is longer than `factor` times its norm (section 3.3).

    A weight that started at zero has no length to be held to, and is left alone.

    >>> weights = {"w": torch.tensor([[3.0, 4.0]])}
    >>> clip_norms_(weights, {"w": torch.tensor(2.0)}, 1.5)
    >>> weights["w"]
    tensor([[1.8000, 2.4000]])
    """
    for name, norm in norms.items():
        longest, length = factor * norm, weights[name].norm()
        is_long = (longest > 0) & (longest < length)
        # Decided where the weights are: nothing waits for a GPU.
        weights[name].mul_(torch.where(is_long, longest / length, torch.ones_like(length)))
