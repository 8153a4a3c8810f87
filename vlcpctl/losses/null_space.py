"""Projection onto the null space of a layer's inputs (Peng et al., 2025; Wang et al., 2021).

A linear layer with the weight W (O, I) answers an input x with W x. A change of W whose rows are
orthogonal to x leaves that answer as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unit(moment_II: Tensor) -> Tensor:
    """The matrix (I, I) over its Frobenius norm; zeros stay zeros.

    >>> unit(torch.tensor([[0.0, 3.0], [4.0, 0.0]])).tolist()
    [[0.0, 0.6], [0.8, 0.0]]
    """
    norm = moment_II.norm()
    return moment_II / torch.where(norm > 0, norm, torch.ones_like(norm))


def is_null(values_I: Tensor, rho: float) -> Tensor:
    """Which directions are in the null space, (I,) bool, by their singular values, largest first.

    Leading directions are left out until the others hold less than `rho` of the sum. All are in it
    if the sum is 0: nothing has been measured.

    >>> is_null(torch.tensor([6.0, 3.0, 1.0]), 0.15).tolist()
    [False, False, True]
    """
    tails_I = values_I.flip(0).cumsum(0).flip(0)
    return (tails_I / tails_I[0] < rho) | (tails_I[0] == 0)


def projector(moment_II: Tensor, rho: float) -> Tensor:
    """V0 V0^T (I, I) of the directions V0 in the null space of a sum of X^T X, symmetric.

    Computed in float64: the threshold is on a sum of many small values.
    """
    values_I, vectors_II = torch.linalg.eigh(moment_II.double())  # smallest first
    null_I = is_null(values_I.flip(0).clamp_min(0), rho).flip(0)
    null_II = vectors_II * null_I
    projector_II: Tensor = null_II @ null_II.T
    return projector_II.to(moment_II.dtype)


def projected(change_OI: Tensor, projector_II: Tensor) -> Tensor:
    """The gradient or update (O, I) without what changes the layer's answers to earlier inputs."""
    return change_OI @ projector_II


def moved(before_OI: Tensor, after_OI: Tensor, projector_II: Tensor) -> Tensor:
    """The weight (O, I) before an update, moved by the projection of what that has changed."""
    return before_OI + projected(after_OI - before_OI, projector_II)
