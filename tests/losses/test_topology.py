"""The topology terms of CTP: a learned temperature has a gradient through the student alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, normalize

from vlcpctl.losses.topology import SUPPRESSED, cross_modal, same_modal

Sides = tuple[Tensor, Tensor]
PAIRS, WIDTH = 5, 6


def sides(seed: int, dtype: torch.dtype = torch.float64) -> Sides:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, PAIRS, WIDTH, generator=generator, dtype=dtype)
    return normalize(image, dim=1), normalize(text, dim=1)


def naive(old: Tensor, new: Tensor, scale: Tensor, *, suppressed: bool) -> Tensor:
    """Mean over rows of KL by its definition, with the teacher's shares as plain numbers."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(PAIRS):
        columns = [column for column in range(PAIRS) if not (suppressed and column == row)]
        value = float(scale.detach())
        weights = [float(torch.exp(value * old[row, column])) for column in columns]
        scores = torch.stack([scale * new[row, column] for column in columns])
        logs = scores - torch.exp(scores).sum().log()
        for weight, log in zip(weights, logs, strict=True):
            share = weight / sum(weights)
            total = total + share * (torch.tensor(share, dtype=torch.float64).log() - log)
    return total / PAIRS


@pytest.mark.parametrize("own", [slice(None), slice(0, PAIRS)])
def test_the_scale_has_the_gradient_of_the_students_similarities(own: slice) -> None:
    scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    new, old = sides(1), sides(2)
    across, within = (
        (
            naive(old[0] @ old[1].T, new[0] @ new[1].T, scale, suppressed=False)
            + naive(old[1] @ old[0].T, new[1] @ new[0].T, scale, suppressed=False)
        )
        / 2,
        sum(
            naive(then @ then.T, now @ now.T, scale, suppressed=True)
            for now, then in zip(new, old, strict=True)
        )
        / 2,
    )
    for found, expected in (
        (cross_modal(new, old, scale, own=own), across),
        (same_modal(new, old, scale, own=own), within),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        ours, theirs = (torch.autograd.grad(one, scale)[0] for one in (found, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [1 / 0.07, torch.tensor(1 / 0.07)])
def test_a_fixed_scale_gives_the_bytes_of_the_plain_formula(scale: Tensor | float) -> None:
    new, old = sides(1, torch.float32), sides(2, torch.float32)
    leaves = [side.requires_grad_() for side in new]
    image, text = (scale * a @ b.T for a, b in (new, old))
    plain = (_kl(text, image) + _kl(text.T, image.T)) / 2
    found = cross_modal(new, old, scale)
    assert torch.equal(found, plain)
    ours, theirs = torch.autograd.grad(found, leaves), torch.autograd.grad(plain, leaves)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    own = torch.eye(PAIRS, dtype=torch.bool)
    rows = [[(side @ side.T).masked_fill(own, SUPPRESSED) for side in both] for both in (new, old)]
    kept = [_kl(scale * then, scale * now) for now, then in zip(*rows, strict=True)]
    assert torch.equal(same_modal(new, old, scale), (kept[0] + kept[1]) / 2)


def _kl(teacher: Tensor, student: Tensor) -> Tensor:
    logs = log_softmax(student, 1), log_softmax(teacher, 1)
    return kl_div(*logs, reduction="sum", log_target=True) / PAIRS
