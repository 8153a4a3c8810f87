"""Dark experience replay: distance of projections from those stored with a buffer.

Shapes: R replayed pairs, D channels.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize


def distance(new_RD: Tensor, stored_RD: Tensor, *, unit: bool) -> Tensor:
    """Squared distance of new from stored projections (R, D), averaged over pairs (DER, section 3).

    With `unit` both are scaled to unit length first, which makes the distance 2 - 2 cos.

    >>> import torch
    >>> distance(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.zeros(2, 2), unit=False).item()
    2.5
    """
    if unit:
        new_RD, stored_RD = normalize(new_RD, dim=1), normalize(stored_RD, dim=1)
    return (new_RD - stored_RD).square().sum(1).mean()
