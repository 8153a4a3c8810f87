"""In-place arithmetic on named tensors, all without gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def copy_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies under the same names."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


@torch.no_grad()
def blend_(
    target: Mapping[str, Tensor], keep: float, *sources: tuple[float, Mapping[str, Tensor]]
) -> None:
    """Target = keep * target + sum of share * source, tensor by tensor.

    >>> weights = {"w": torch.tensor([1.0])}
    >>> blend_(weights, 0.5, (0.5, {"w": torch.tensor([3.0])}))
    >>> weights["w"].item()
    2.0
    """
    for name, tensor in target.items():
        tensor.mul_(keep)
        for share, source in sources:
            tensor.add_(source[name], alpha=share)
