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


def contrast(logits_BT: Tensor, share: float) -> Tensor:
    """Each image finds its text among all, each text its image; `share` is alpha (eqs. 2-6).

    >>> round(contrast(torch.eye(2) * 9, 0.5).item(), 5)
    0.00012
    """
    size = len(logits_BT)
    labels_B = torch.arange(size, device=logits_BT.device)
    to_text = cross_entropy(logits_BT, labels_B)
    to_image = cross_entropy(logits_BT[:, :size].T, labels_B)
    return share * to_text + (1 - share) * to_image


def distil(new_BT: Tensor, old_BT: Tensor, share: float, *, is_reversed: bool = False) -> Tensor:
    """Keep the rows and columns of the previous logits; `share` is eta (eqs. 7-9).

    As printed, from the current distribution to the previous one; reversed, the other way round.
    Columns are those of the texts that have an image.
    """
    size = len(new_BT)
    rows, columns = (new_BT, old_BT), (new_BT[:, :size].T, old_BT[:, :size].T)
    to_text, to_image = (
        _divergence(old, new) if is_reversed else _divergence(new, old)
        for new, old in (rows, columns)
    )
    return share * to_text + (1 - share) * to_image


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
