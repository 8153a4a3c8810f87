"""Quadratic penalties on changes to weights, and their gradients in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


@torch.no_grad()
def quadratic(
    importance: Mapping[str, Tensor], weights: Mapping[str, Tensor], anchor: Mapping[str, Tensor]
) -> Tensor:
    """Sum of importance * (weight - anchor)^2 over all elements, a scalar without gradient.

    >>> one = {"w": torch.tensor([1.0, 2.0])}
    >>> quadratic({"w": torch.tensor([3.0, 5.0])}, one, {"w": torch.zeros(2)}).item()
    23.0
    """
    # In place: more temporaries of a weight's size would take longer than the arithmetic.
    parts = [
        (weights[name] - anchor[name]).square_().mul_(held).sum()
        for name, held in importance.items()
    ]
    return torch.stack(parts).sum()


@torch.no_grad()
def gradient_in_(
    importance: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    anchor: Mapping[str, Tensor],
    *,
    strength: float,
) -> Mapping[str, Tensor]:
    """The gradient of strength * `quadratic`, by name, in the tensors of the importance."""
    for name, held in importance.items():
        held.mul_(weights[name] - anchor[name]).mul_(2 * strength)
    return importance


@torch.no_grad()
def add_gradient_(
    grads: Mapping[str, Tensor],
    importance: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    anchor: Mapping[str, Tensor],
    *,
    strength: float,
) -> None:
    """Add the gradient of strength * `quadratic` in place.

    Weights that are missing from `grads` were not reached by the loss and get no gradient: their
    gradient stays None, so that the optimizer skips them.
    """
    for name, grad in grads.items():
        grad.addcmul_(importance[name], weights[name] - anchor[name], value=2 * strength)
