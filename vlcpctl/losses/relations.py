"""Instance-wise relation distillation of Co2L: distil similarities between samples.

Shapes: B pairs, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vlcpctl.losses.distillation import row_kl
from vlcpctl.losses.rows import ALL

Sides = tuple[Tensor, Tensor]  # images and texts, (B, D) each


def all_relations(new: Sides, old: Sides, *, now: float, then: float, own: slice = ALL) -> Tensor:
    """KL from old to new similarities of each sample to all others, a scalar (Co2L, section 4.2).

    An image and its text take the place of the two views of an instance: 2 B samples, each compared
    with the 2 B - 1 others. `now` and `then` are the temperatures of new and old similarities. The
    paper writes a cross-entropy, which has the same gradient. With `own`, only the rows of these
    pairs' images and texts: parts of all processes add up.

    >>> eye = torch.eye(3)
    >>> all_relations((eye, eye), (eye, eye), now=0.2, then=0.2).item()
    0.0
    """
    count = 2 * len(new[0])
    return row_kl(_to_others(old, own) / then, _to_others(new, own) / now, count)


def cross_relations(new: Sides, old: Sides, *, now: float, then: float, own: slice = ALL) -> Tensor:
    """KL from old to new similarities of images to all texts and texts to all images, a scalar.

    With `own`, only the rows of these pairs.
    """
    pairs = zip(_to_other_side(new, now, own), _to_other_side(old, then, own), strict=True)
    to_text, to_image = (row_kl(was, is_, len(new[0])) for is_, was in pairs)
    return (to_text + to_image) / 2


def _to_other_side(sides: Sides, temperature: float, own: slice) -> Sides:
    """Similarities over a temperature of the own images to texts, and texts to images, (b, B)."""
    image_BD, text_BD = sides
    if own == ALL:
        logits_BB = image_BD @ text_BD.T / temperature
        return logits_BB, logits_BB.T
    return image_BD[own] @ text_BD.T / temperature, text_BD[own] @ image_BD.T / temperature


def _to_others(sides: Sides, own: slice) -> Tensor:
    """Similarities of the N = 2 B images and texts to all others: (n, N - 1), the n own rows."""
    features_ND = torch.cat(sides)
    places = torch.arange(len(features_ND), device=features_ND.device)
    rows = torch.cat([places[: len(sides[0])][own], places[len(sides[0]) :][own]])
    samples_nD = features_ND if own == ALL else torch.cat([side[own] for side in sides])
    # Each row without its own place, by index: a mask would make the CPU wait for a GPU, to learn
    # how many elements it selects.
    others_nM = places[:-1] + (places[:-1] >= rows[:, None])
    return (samples_nD @ features_ND.T).gather(1, others_nM)
