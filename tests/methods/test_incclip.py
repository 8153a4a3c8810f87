"""IncCLIP's loss against a loop over eqs. 2-10 from raw projections, gradients included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.fake_run import FakeRun, fake_batch
from torch import Tensor

from vlcpctl.core.batch import Features
from vlcpctl.core.errors import UsageError
from vlcpctl.methods.incclip import Incclip
from vlcpctl.models.embed import as_features

B, K, D = 4, 3, 5
BATCH = fake_batch(B)
TAU = 0.07


def raw(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Projections of images, of their texts, and of negative texts."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(B, D, generator=generator, dtype=torch.float64)
    text = image + torch.randn(B, D, generator=generator, dtype=torch.float64)
    return image, text, torch.randn(K, D, generator=generator, dtype=torch.float64)


def seen(image: Tensor, text: Tensor, pseudo: Tensor | None = None) -> Features:
    return as_features(image, text, torch.tensor(1 / TAU, dtype=torch.float64), pseudo)


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / (one * one).sum().sqrt() / (other * other).sum().sqrt()


def softmax(scores: list[Tensor]) -> list[Tensor]:
    total = sum(torch.exp(score) for score in scores)
    return [torch.exp(score) / total for score in scores]


def divergence(p: list[Tensor], q: list[Tensor]) -> Tensor:
    return sum((a * torch.log(a / b) for a, b in zip(p, q, strict=True)), torch.zeros(()))


def naive(now: tuple[Tensor, ...], then: tuple[Tensor, ...], method: Incclip) -> Tensor:
    """Eqs. 2-10, a sample at a time."""
    images, texts = now[0], torch.cat(now[1:])
    old_images, old_texts = then[0], torch.cat(then[1:])
    to_text = to_image = kept_text = kept_image = torch.zeros((), dtype=torch.float64)
    for i in range(B):
        p = softmax([cosine(images[i], text) / TAU for text in texts])
        q = softmax([cosine(old_images[i], text) / method.tau_old for text in old_texts])
        to_text = to_text - torch.log(p[i]) / B
        kept_text = kept_text + (divergence(q, p) if reverse(method) else divergence(p, q)) / B
    for j in range(B):
        p = softmax([cosine(image, texts[j]) / TAU for image in images])
        q = softmax([cosine(image, old_texts[j]) / method.tau_old for image in old_images])
        to_image = to_image - torch.log(p[j]) / B
        kept_image = kept_image + (divergence(q, p) if reverse(method) else divergence(p, q)) / B
    contrastive = method.alpha * to_text + (1 - method.alpha) * to_image
    kept = method.eta * kept_text + (1 - method.eta) * kept_image
    return contrastive + method.lambda_ * kept


def reverse(method: Incclip) -> bool:
    return method.kl == "reversed"


def assert_same(ours: Tensor, theirs: Tensor, of: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    pairs = zip(torch.autograd.grad(ours, of), torch.autograd.grad(theirs, of), strict=True)
    for one, other in pairs:
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "how",
    [{}, {"kl": "reversed"}, {"alpha": 0.3, "eta": 0.9, "lambda_": 2.0, "tau_old": 0.05}],
)
def test_the_loss_is_eq_10(how: dict[str, Any]) -> None:
    method, now, then = Incclip(**how), raw(1), raw(0)
    for tensor in now:
        tensor.requires_grad_()
    terms, _ = method.loss(FakeRun(old=seen(*then)), BATCH, seen(*now))
    assert set(terms) == {"contrastive", "distil"}
    assert_same(sum(terms.values()), naive(now, then, method), now)


def test_without_texts_and_distillation_it_is_the_base_loss() -> None:
    from vlcpctl.losses.contrastive import image_text

    out = seen(*raw(1)[:2])
    off = Incclip(count=0, lambda_=0)
    terms, _ = off.loss(FakeRun(), BATCH, out)
    i2t, t2i = image_text(out.image, out.text, out.scale)
    assert torch.equal(terms["contrastive"], (i2t + t2i) / 2)


@torch.no_grad()
def test_matrices_are_held_to_the_norms_of_the_first_step_and_vectors_are_free() -> None:
    weights = {"matrix": torch.full((2, 2), 1.0), "bias": torch.full((3,), 1.0)}
    for weight in weights.values():
        weight.requires_grad_()
    method = Incclip(gamma=1.5)
    run = FakeRun(weights=weights).start(method)
    weights["matrix"].mul_(2)
    weights["bias"].mul_(9)
    method.after_step(run, BATCH, {}, stepped=True)
    torch.testing.assert_close(weights["matrix"], torch.full((2, 2), 1.5))
    assert torch.equal(weights["bias"], torch.full((3,), 9.0))
    weights["matrix"].mul_(1.2)
    replace(method, clip=False).after_step(run, BATCH, {}, stepped=True)
    torch.testing.assert_close(weights["matrix"], torch.full((2, 2), 1.8))


def test_bounds_that_hold_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="the lower bound must be below the upper bound"):
        Incclip(s_min=0.5, s_max=0.5).needs(first=False)
