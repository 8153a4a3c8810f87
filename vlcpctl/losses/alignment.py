"""Off-diagonal alignment of Mod-X: distil the previous similarity rows, except wrong ones.

Shapes: B pairs, D channels; features are of unit length.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def off_diagonal(
    new_BB: Tensor, old_BB: Tensor, *, reduction: str = "sum", temperature: float = 1.0
) -> Tensor:
    """KL divergence from old to new rows of similarities (B, B), a scalar (Mod-X eqs. 3-4).

    Rows whose largest old entry is not on the diagonal are left out: the paper replaces them by the
    current model's own, which adds neither value nor gradient. The rows are summed; with
    `reduction="mean"` the sum is divided by B, including the rows left out.

    >>> off_diagonal(torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])).item()
    0.0
    """
    size = len(old_BB)
    right_B = old_BB.argmax(1) == torch.arange(size, device=old_BB.device)
    student = log_softmax(new_BB / temperature, 1)
    teacher = log_softmax(old_BB / temperature, 1)
    rows_B = kl_div(student, teacher, reduction="none", log_target=True).sum(1)
    total = torch.where(right_B, rows_B, torch.zeros_like(rows_B)).sum()
    return total if reduction == "sum" else total / size
