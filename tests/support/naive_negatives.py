"""Contrastive losses with --negatives distinct as a double loop over pairs: slow and obvious."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor


def one_direction(
    queries: Tensor, candidates: Tensor, scale: float | Tensor, groups: Sequence[Hashable]
) -> list[Tensor]:
    """The cross-entropy of each query b with candidate b; `groups` are those of the candidates.

    A candidate whose group is None is a negative of all.
    """
    losses = []
    for row, query in enumerate(queries):
        positive = scale * (query @ candidates[row])
        total = positive.exp()
        for place, candidate in enumerate(candidates):
            matches = groups[place] is not None and groups[place] == groups[row]
            if place != row and not matches:
                total = total + (scale * (query @ candidate)).exp()
        losses.append(total.log() - positive)
    return losses


def both_directions(
    image: Tensor, text: Tensor, scale: float | Tensor, groups: Sequence[Hashable]
) -> tuple[Tensor, Tensor]:
    """Image-to-text and text-to-image, two scalars, averaged over the pairs."""
    sides = (one_direction(image, text, scale, groups), one_direction(text, image, scale, groups))
    to_text, to_image = (torch.stack(side).mean() for side in sides)
    return to_text, to_image


def united(sharing: Sequence[set[Hashable]]) -> list[int]:
    """The number of the group of each pair, given what it may share with others: by repetition."""
    groups = list(range(len(sharing)))
    changed = True
    while changed:
        changed = False
        for one in range(len(sharing)):
            for other in range(one):
                if sharing[one] & sharing[other] and groups[one] != groups[other]:
                    groups[one] = groups[other] = min(groups[one], groups[other])
                    changed = True
    return groups
