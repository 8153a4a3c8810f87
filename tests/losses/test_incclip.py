"""IncCLIP's equations against loops written from the paper, in double precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vlcpctl.losses.incclip import Logits, clip_norms_, contrast, distil, margins

B, K, TAU, TAU_OLD = 4, 3, 0.07, 0.01


def scores(seed: int, rows: int = B, columns: int = B + K) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 1.6 - 0.6


def probability_of_text(s: Tensor, i: int, k: int, tau: float) -> Tensor:
    """Eq. 2, over every text."""
    total = sum(torch.exp(s[i, j] / tau) for j in range(s.shape[1]))
    return torch.exp(s[i, k] / tau) / total


def probability_of_image(s: Tensor, j: int, k: int, tau: float) -> Tensor:
    """Eq. 3, over every image."""
    total = sum(torch.exp(s[i, j] / tau) for i in range(s.shape[0]))
    return torch.exp(s[k, j] / tau) / total


def margin_of(s: Tensor, k: int, low: float, high: float) -> Tensor:
    """Eq. 1 for one text."""
    zero, total = torch.zeros((), dtype=s.dtype), torch.zeros((), dtype=s.dtype)
    for i in range(s.shape[0]):
        total = total + torch.maximum(zero, low - s[i, k]) + torch.maximum(zero, s[i, k] - high)
    return total / s.shape[0]


def contrastive(s: Tensor, alpha: float) -> Tensor:
    """Eqs. 4-6."""
    to_text = to_image = torch.zeros((), dtype=s.dtype)
    for i in range(B):
        to_text = to_text - torch.log(probability_of_text(s, i, i, TAU)) / B
        to_image = to_image - torch.log(probability_of_image(s, i, i, TAU)) / B
    return alpha * to_text + (1 - alpha) * to_image


def divergence(p: list[Tensor], q: list[Tensor]) -> Tensor:
    return sum((a * torch.log(a / b) for a, b in zip(p, q, strict=True)), torch.zeros(()))


def distillation(s: Tensor, old: Tensor, eta: float, *, reverse: bool) -> Tensor:
    """Eqs. 7-9; negative texts are in the image-to-text part only."""
    to_text = to_image = torch.zeros((), dtype=s.dtype)
    for i in range(B):
        now = [probability_of_text(s, i, k, TAU) for k in range(B + K)]
        then = [probability_of_text(old, i, k, TAU_OLD) for k in range(B + K)]
        to_text = to_text + (divergence(then, now) if reverse else divergence(now, then)) / B
        now = [probability_of_image(s, i, k, TAU) for k in range(B)]
        then = [probability_of_image(old, i, k, TAU_OLD) for k in range(B)]
        to_image = to_image + (divergence(then, now) if reverse else divergence(now, then)) / B
    return eta * to_text + (1 - eta) * to_image


def weighted(directions: tuple[Tensor, Tensor], share: float) -> Tensor:
    return share * directions[0] + (1 - share) * directions[1]


def assert_same(ours: Tensor, naive: Tensor, of: Tensor) -> None:
    """Value and gradient to 1e-9."""
    torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-9)
    one, other = (torch.autograd.grad(value.sum(), of)[0] for value in (ours, naive))
    assert one.abs().sum() > 0
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_the_margin_loss_is_eq_1() -> None:
    s = scores(0).requires_grad_()
    naive = torch.stack([margin_of(s, k, 0.1, 0.4) for k in range(s.shape[1])])
    assert (naive > 0).any()
    assert_same(margins(s, 0.1, 0.4), naive, s)


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_the_contrastive_loss_is_eqs_2_to_6(alpha: float) -> None:
    s = scores(1).requires_grad_()
    assert_same(weighted(contrast(Logits(s / TAU)), alpha), contrastive(s, alpha), s)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_distillation_is_eqs_7_to_9(reverse: bool) -> None:
    s, old = scores(2).requires_grad_(), scores(3)
    ours = weighted(distil(Logits(s / TAU), Logits(old / TAU_OLD), is_reversed=reverse), 0.3)
    assert_same(ours, distillation(s, old, 0.3, reverse=reverse), s)


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_is_lost_where_the_models_agree(reverse: bool) -> None:
    s = scores(5).requires_grad_()
    kept = weighted(distil(Logits(s), Logits(s.detach()), is_reversed=reverse), 0.5)
    assert kept.item() == pytest.approx(0, abs=1e-12)
    assert torch.autograd.grad(kept, s)[0].abs().max() < 1e-12


def test_a_long_weight_keeps_its_direction_and_a_short_one_its_length() -> None:
    weights = {"long": scores(6), "short": scores(7), "new": scores(8)}
    before = {name: weight.clone() for name, weight in weights.items()}
    norms = {name: torch.tensor(math.inf) for name in ("short",)}
    norms |= {"long": before["long"].norm() / 3, "new": torch.tensor(0.0)}
    clip_norms_(weights, norms, 1.5)
    assert weights["long"].norm().item() == pytest.approx(before["long"].norm().item() / 2)
    torch.testing.assert_close(weights["long"] * 2, before["long"])
    assert torch.equal(weights["short"], before["short"])
    assert torch.equal(weights["new"], before["new"])


def test_clipping_twice_is_clipping_once_to_rounding() -> None:
    weights = {"w": scores(9)}
    norms = {"w": weights["w"].norm() / 4}
    clip_norms_(weights, norms, 1.5)
    once = weights["w"].clone()
    clip_norms_(weights, norms, 1.5)
    torch.testing.assert_close(weights["w"], once, rtol=1e-14, atol=0)
