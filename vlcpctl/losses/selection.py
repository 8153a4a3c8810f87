"""Distillation from two teachers, weighted by how far they are apart (SnD: Yu et al., 2024).

Shapes: B samples, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def trust_in_newer(older_BD: Tensor, newer_BD: Tensor, *, slope: float, threshold: float) -> Tensor:
    """The weight of the newer teacher for each sample, (B,), in (0, 1).

    It is sigmoid(slope * (distance - threshold)): where the newer one has moved away, the sample
    is like what it has learned since.

    >>> same = torch.eye(2)
    >>> trust_in_newer(same, same, slope=6.0, threshold=0.2)
    tensor([0.2315, 0.2315])
    """
    return torch.sigmoid(slope * ((older_BD - newer_BD).norm(dim=1) - threshold))


def selected_distance(
    student_BD: Tensor, teacher_BD: Tensor, weight_B: Tensor, *, by_sample: bool
) -> Tensor:
    """The mean over samples of weight * squared distance to a teacher, ().

    With `by_sample` false, it is the mean weight times the mean distance.

    >>> student, teacher = torch.eye(2), torch.zeros(2, 2)
    >>> selected_distance(student, teacher, torch.tensor([0.5, 0.0]), by_sample=True)
    tensor(0.2500)
    """
    squares_B = (student_BD - teacher_BD).square().sum(1)
    return (weight_B * squares_B).mean() if by_sample else weight_B.mean() * squares_B.mean()
