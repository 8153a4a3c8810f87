"""Instance-wise relation distillation of Co2L: distil similarities between samples.

Shapes: B pairs, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vlcpctl.losses.distillation import row_kl

Sides = tuple[Tensor, Tensor]  # images and texts, (B, D) each


def all_relations(new: Sides, old: Sides, *, now: float, then: float) -> Tensor:
    """KL from old to new similarities of each sample to all others, a scalar (Co2L, section 4.2).

    An image and its text take the place of the two views of an instance: 2 B samples, each compared
    with the 2 B - 1 others. `now` and `then` are the temperatures of new and old similarities. The
    paper writes a cross-entropy, which has the same gradient.

    >>> eye = torch.eye(3)
    >>> all_relations((eye, eye), (eye, eye), now=0.2, then=0.2).item()
    0.0
    """
    return row_kl(_to_others(torch.cat(old)) / then, _to_others(torch.cat(new)) / now)


def cross_relations(new: Sides, old: Sides, *, now: float, then: float) -> Tensor:
    """KL from old to new similarities of images to all texts and texts to all images, a scalar."""
    new_BB, old_BB = new[0] @ new[1].T / now, old[0] @ old[1].T / then
    return (row_kl(old_BB, new_BB) + row_kl(old_BB.T, new_BB.T)) / 2


def _to_others(features_ND: Tensor) -> Tensor:
    """Similarities (N, N - 1) of each sample to all others."""
    count = len(features_ND)
    others_NN = ~torch.eye(count, dtype=torch.bool, device=features_ND.device)
    return (features_ND @ features_ND.T)[others_NN].view(count, count - 1)
