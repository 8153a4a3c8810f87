"""Off-diagonal alignment of Mod-X: distil the previous similarity rows, except wrong ones.

Shapes: B pairs, b rows of a matrix, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from vlcpctl.losses.rows import ALL


def off_diagonal(
    new_bB: Tensor,
    old_bB: Tensor,
    *,
    reduction: str = "sum",
    temperature: float = 1.0,
    own: slice = ALL,
) -> Tensor:
    """KL divergence from old to new rows of similarities (B, B), a scalar (Mod-X eqs. 3-4).

    Rows whose largest old entry is not on the diagonal are left out: the paper replaces them by the
    current model's own, which adds neither value nor gradient. The rows are summed; with
    `reduction="mean"` the sum is divided by B, including the rows left out. With `own`, the
    matrices (b, B) have only the rows of these pairs; parts of all processes add up.

    >>> off_diagonal(torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])).item()
    0.0
    """
    size = old_bB.shape[1]
    right_b = old_bB.argmax(1) == torch.arange(size, device=old_bB.device)[own]
    student = log_softmax(new_bB / temperature, 1)
    teacher = log_softmax(old_bB / temperature, 1)
    rows_b = kl_div(student, teacher, reduction="none", log_target=True).sum(1)
    total = torch.where(right_b, rows_b, torch.zeros_like(rows_b)).sum()
    return total if reduction == "sum" else total / size
