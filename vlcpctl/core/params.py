"""Arithmetic on named tensors, in place and without gradient.

One foreach call for all tensors: on a GPU a few kernels instead of one for each tensor; on a CPU
the same operations tensor by tensor, with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def copy_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies of the tensors under the same names."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def trainable(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that require a gradient; the tensors themselves, not copies."""
    return {name: tensor for name, tensor in weights.items() if tensor.requires_grad}


def zeros_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Zero tensors with the names and shapes of the weights that require a gradient."""
    return {name: torch.zeros_like(tensor).detach() for name, tensor in trainable(weights).items()}


def zero_count() -> Tensor:
    """A counter at 0: an int64 scalar tensor, which can be saved with weights."""
    return torch.zeros((), dtype=torch.int64)


@torch.no_grad()
def zero_(target: Mapping[str, Tensor]) -> None:
    """Set every tensor of the target to 0."""
    if target:
        torch._foreach_zero_([*target.values()])


@torch.no_grad()
def copy_(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy the source into the target, by name; tensors missing in the source are set to 0."""
    copied = [name for name in target if name in source]
    if copied:
        torch._foreach_copy_([target[name] for name in copied], [source[name] for name in copied])
    zero_({name: tensor for name, tensor in target.items() if name not in source})


@torch.no_grad()
def add_(target: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Add the source to the target, by name, for the names that are in both."""
    names = [name for name in target if name in source]
    if names:
        torch._foreach_add_([target[name] for name in names], [source[name] for name in names])


@torch.no_grad()
def blend_(
    target: Mapping[str, Tensor], keep: float, *sources: tuple[float, Mapping[str, Tensor]]
) -> None:
    """Set each tensor of the target to keep * target + sum of share * source.

    Every source must have all names of the target.

    >>> weights = {"w": torch.tensor([1.0])}
    >>> blend_(weights, 0.5, (0.5, {"w": torch.tensor([3.0])}))
    >>> weights["w"].item()
    2.0
    """
    if not target:
        return
    tensors = [*target.values()]
    torch._foreach_mul_(tensors, keep)
    for share, source in sources:
        torch._foreach_add_(tensors, [source[name] for name in target], alpha=share)
