"""Knowledge distillation: the KL divergence from a teacher's outputs to a student's."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def row_kl(teacher: Tensor, student: Tensor, count: int | None = None) -> Tensor:
    """Mean over rows of KL(softmax(teacher) || softmax(student)) of logits (rows, classes).

    The sum over rows is divided by `count`, if they are only a part of them. It has the gradient of
    the cross-entropy between the two, and is 0 where they agree.

    >>> import torch
    >>> row_kl(torch.eye(3), torch.eye(3)).item()
    0.0
    """
    total = kl_div(
        log_softmax(student, 1), log_softmax(teacher, 1), reduction="sum", log_target=True
    )
    return total / (count or len(student))


def softened(
    teacher: Tensor, student: Tensor, *, temperature: float, count: int | None = None
) -> Tensor:
    """`row_kl` of logits divided by a temperature, times its square (Hinton et al., 2015, sec. 2).

    The gradient then keeps its size, whatever the temperature.
    """
    heat = temperature
    return heat**2 * row_kl(teacher / heat, student / heat, count)
