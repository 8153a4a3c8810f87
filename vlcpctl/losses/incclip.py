"""IncCLIP (Yan et al., 2022): generating negative texts, and the loss that uses them.

Shapes: B image-text pairs, K negative texts without images, T = B + K texts, D channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from vlcpctl.core.method import RowLoss
from vlcpctl.losses.rows import ALL, SOFTMAX, matches


@dataclass(frozen=True)
class Logits:
    """Scaled similarities of images to texts and of the pairs' texts to images.

    The second are a part of the first if these have all rows, else they are given.
    """

    to_text: Tensor  # (B, T), or the rows of some pairs
    own_to_image: Tensor | None = None  # (b, B), the rows of the same pairs

    @property
    def pairs(self) -> int:
        """B, the pairs of the batch."""
        return len(self.to_text) if self.own_to_image is None else self.own_to_image.shape[1]

    @property
    def to_image(self) -> Tensor:
        """The similarities of the pairs' texts to all images, (B, B) or (b, B)."""
        if self.own_to_image is not None:
            return self.own_to_image
        return self.to_text[:, : len(self.to_text)].T


def margins(scores_BK: Tensor, low: float, high: float) -> Tensor:
    """How far each text's similarities are outside [low, high], (K,), averaged over images (eq. 1).

    `scores_BK` are the cosines of images and texts.

    >>> margins(torch.tensor([[0.0, 0.3], [0.5, 0.3]]), 0.2, 0.4)
    tensor([0.1500, 0.0000])
    """
    return ((low - scores_BK).clamp_min(0) + (scores_BK - high).clamp_min(0)).mean(0)


def logits(
    image_BD: Tensor,
    text_BD: Tensor,
    pseudo_KD: Tensor | None,
    scale: Tensor | float,
    own: slice = ALL,
) -> Logits:
    """Scaled similarities of images to the batch's texts and the negative ones, texts to images.

    Features are of unit length; `scale` is 1 / temperature.

    >>> logits(torch.eye(2), torch.eye(2), torch.ones(1, 2), 2.0).to_text
    tensor([[2., 0., 2.],
            [0., 2., 2.]])
    """
    text_TD = text_BD if pseudo_KD is None else torch.cat([text_BD, pseudo_KD])
    to_text = scale * image_BD[own] @ text_TD.T
    if own == ALL:
        return Logits(to_text)
    return Logits(to_text, scale * text_BD[own] @ image_BD.T)


def contrast(
    found: Logits,
    own: slice = ALL,
    *,
    groups_B: Tensor | None = None,
    rows: RowLoss = SOFTMAX,
) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image loss, two scalars: with a softmax, eqs. 2-5.

    Negative texts are candidates for the images, but not queries. With `own`, only the rows of
    these pairs: parts of all processes add up. With `groups_B`, the groups of the pairs, members of
    a group are not negatives of each other; a negative text is in no group. `rows` is
    `Run.row_loss`.

    >>> round(contrast(Logits(torch.eye(2) * 9))[0].item(), 5)
    0.00012
    """
    if groups_B is not None:
        found = _without_matches(found, groups_B, own)
    return rows(found.to_text, found.pairs, own), rows(found.to_image, found.pairs, own)


def _without_matches(found: Logits, groups_B: Tensor, own: slice) -> Logits:
    """Copies of the logits, of which the distillation needs all, with -inf where pairs match."""
    negative_K = groups_B.new_full((found.to_text.shape[1] - found.pairs,), -1)
    matches_bT = matches(groups_B, own, negative_K)
    to_text = found.to_text.masked_fill(matches_bT, -math.inf)
    if found.own_to_image is None:
        return Logits(to_text)
    matches_bB = matches_bT[:, : found.pairs]
    return Logits(to_text, found.own_to_image.masked_fill(matches_bB, -math.inf))


def distil(new: Logits, old: Logits, *, is_reversed: bool = False) -> tuple[Tensor, Tensor]:
    """KL divergence of images' texts, and of texts' images, two scalars (eqs. 7-8).

    From the current distribution to the previous one, as printed; `is_reversed` swaps the two.
    Each is a sum over rows, divided by B.
    """
    student, teacher = (new.to_text, new.to_image), (old.to_text, old.to_image)
    one, other = (teacher, student) if is_reversed else (student, teacher)
    return _divergence(one[0], other[0], new.pairs), _divergence(one[1], other[1], new.pairs)


def _divergence(one: Tensor, other: Tensor, count: int) -> Tensor:
    """Sum over rows of KL(softmax(one) || softmax(other)) / count, with gradient for both."""
    one, other = log_softmax(one, 1), log_softmax(other, 1)
    rows = (one.exp() * (one - other)).sum(1)
    return rows.mean() if len(rows) == count else rows.sum() / count


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
