"""Importance of each weight: squared and absolute gradients, path integrals, scores.

Shapes: B pairs, D channels; named tensors have the shapes of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


@torch.no_grad()
def add_squares_(target: Named, grads: Named, share: float) -> None:
    """Target += share * gradient^2, the diagonal of the empirical Fisher matrix, in place."""
    for name, grad in grads.items():
        target[name].addcmul_(grad, grad, value=share)


@torch.no_grad()
def add_sizes_(target: Named, grads: Named, share: float) -> None:
    """Target += share * |gradient|, in place (MAS, section 4.1)."""
    for name, grad in grads.items():
        target[name].add_(grad.abs(), alpha=share)


@torch.no_grad()
def squares_over_mean(grads: Named, weights: Named, elsewhere: float) -> dict[str, Tensor]:
    """Squared gradients over their mean in each tensor (GIFT: Wu et al., 2025), by weight.

    So every tensor that the gradient reaches has the mean importance 1; others have `elsewhere`. A
    tensor whose gradient is 0 throughout has 0, and so has one whose gradient is not finite, as
    fp16 may make it in a step that the optimizer then skips.

    >>> squares_over_mean({"w": torch.tensor([1.0, 3.0])}, {"w": torch.zeros(2)}, 1e-6)["w"]
    tensor([0.2000, 1.8000])
    """
    found = {}
    for name, weight in weights.items():
        if name in grads:
            squares = grads[name].square()
            found[name] = squares.div_(squares.mean()).nan_to_num_(0.0, posinf=0.0)
        else:
            found[name] = torch.full_like(weight, elsewhere)
    return found


def lengths(raw_BD: Tensor, *, squared: bool) -> Tensor:
    """Length of each sample's projection, or its square, (B,), with gradient.

    >>> lengths(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), squared=False).tolist()
    [5.0, 1.0]
    """
    return raw_BD.square().sum(1) if squared else raw_BD.norm(dim=1)


@torch.no_grad()
def add_path_(path: Named, gradient: Named, before: Named, after: Named) -> None:
    """Path -= gradient * (after - before), in place: how much a step reduced the loss.

    A first-order estimate per weight (SI, eq. 3).

    >>> path = {"w": torch.zeros(1)}
    >>> up, was, now = torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.5])
    >>> add_path_(path, {"w": up}, {"w": was}, {"w": now})
    >>> path["w"].item()
    1.0
    """
    for name, travelled in path.items():
        travelled.addcmul_(gradient[name], after[name] - before[name], value=-1)


@torch.no_grad()
def per_distance(path: Named, start: Named, end: Named, damping: float) -> dict[str, Tensor]:
    """Path / ((end - start)^2 + damping), the importance of SI (eq. 5), in each weight's shape."""
    return {
        name: travelled / ((end[name] - start[name]).square() + damping)
        for name, travelled in path.items()
    }


@torch.no_grad()
def per_fisher_distance(
    path: Named, fisher: Named, ends: tuple[Named, Named], *, half: float, damping: float
) -> dict[str, Tensor]:
    """The positive part of path / (half * fisher * (end - start)^2 + damping), RWalk's score.

    `ends` are the weights at the start and at the end; `half` is 1/2 in the paper. Each result has
    the shape of its weight.
    """
    start, end = ends
    return {
        name: (
            travelled / (half * fisher[name] * (end[name] - start[name]).square() + damping)
        ).clamp_min(0)
        for name, travelled in path.items()
    }


@torch.no_grad()
def over_largest(values: Named) -> dict[str, Tensor]:
    """Values divided by the largest of all tensors, so that none exceeds 1; zeros stay zeros.

    >>> over_largest({"a": torch.tensor([1.0, 4.0]), "b": torch.tensor([2.0])})["b"].item()
    0.5
    """
    largest = torch.stack([value.max() for value in values.values()]).max()
    return {
        name: value / torch.where(largest > 0, largest, torch.ones_like(largest))
        for name, value in values.items()
    }
