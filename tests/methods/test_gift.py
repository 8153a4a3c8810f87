"""GIFT against loops over rows and the authors' numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.core.batch import Features
from vlcpctl.losses.distillation import softened
from vlcpctl.losses.importance import squares_over_mean
from vlcpctl.losses.penalty import gradient_in_, quadratic
from vlcpctl.methods.gift import Gift

BATCH = replace(fake_batch(3), reference=fake_batch(5))
IN_GROUPS = replace(
    BATCH, reference=replace(fake_batch(5), groups=torch.tensor([4, 4, 9, 4, 1]))
)  # as with --negatives distinct
# Of single functions of the authors' code; see the names in the file.
NUMBERS = Path(__file__).parent / "data" / "reference_losses.npz"


def _sides(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    return image, text


def _out(image: torch.Tensor, text: torch.Tensor) -> Features:
    return replace(features(*_sides(9)), reference=features(image, text, temperature=0.5))


def _numbers(prefix: str) -> dict[str, torch.Tensor]:
    with np.load(NUMBERS) as found:
        return {
            name.removeprefix(prefix): torch.from_numpy(found[name])
            for name in found.files
            if name.startswith(prefix)
        }


def _kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """4 times the mean over rows of KL(first || second), written out for temperature 2."""
    total = torch.zeros((), dtype=torch.float64)
    for row, other in zip(first, second, strict=True):
        p, q = torch.softmax(row / 2, 0), torch.softmax(other / 2, 0)
        total = total + 4 * (p * (p / q).log()).sum() / len(first)
    return total


@pytest.mark.parametrize("divergence", ["forward", "reverse"])
def test_distillation_is_the_row_by_row_one(divergence: str) -> None:
    old = features(*_sides(0))  # its own temperature, 0.07, is not the model's
    terms, _ = Gift(divergence=divergence).loss(FakeRun(old=old), BATCH, _out(*_sides(1)))
    new = features(*_sides(1), temperature=0.5)
    then, now = (2 * one.image @ one.text.T for one in (old, new))
    for name, pair in (("image", (then, now)), ("text", (then.T, now.T))):
        ordered = pair if divergence == "forward" else pair[::-1]
        torch.testing.assert_close(terms[name], _kl(*ordered))


@pytest.mark.parametrize("batch", [BATCH, IN_GROUPS], ids=["all", "distinct"])
def test_alignment_is_the_element_by_element_one(batch: object) -> None:
    assert isinstance(batch, type(BATCH))
    assert batch.reference is not None
    groups = batch.reference.groups
    groups = torch.arange(5) if groups is None else groups
    new = features(*_sides(1), temperature=0.5)
    logits = 2 * new.image @ new.text.T
    wanted = torch.zeros((), dtype=torch.float64)
    for matrix in (logits, logits.T):
        for row in range(5):
            right = [column for column in range(5) if groups[column] == groups[row]]
            for column in range(5):
                target = 0.2 / 5 + (0.8 / len(right) if column in right else 0.0)
                logarithm = matrix[row, column] - torch.logsumexp(matrix[row], 0)
                wanted = wanted - 0.25 * target * logarithm / 5
    terms, _ = Gift(strength=0).loss(FakeRun(), batch, _out(*_sides(1)))
    assert terms.keys() == {"alignment"}
    torch.testing.assert_close(terms["alignment"], wanted)


def test_both_towers_get_a_gradient_and_the_temperature_none() -> None:
    image, text = (side.requires_grad_() for side in _sides(1))
    out = _out(image, text)
    assert out.reference is not None
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    out = replace(out, reference=replace(out.reference, scale=scale))
    terms, _ = Gift().loss(FakeRun(old=features(*_sides(0))), BATCH, out)
    for term in terms.values():
        grads = torch.autograd.grad(
            term, (image, text, scale), allow_unused=True, retain_graph=True
        )
        assert [one is not None for one in grads] == [True, True, False]


def test_shares_of_processes_add_up() -> None:
    old, out = features(*_sides(0)), _out(*_sides(1))
    whole, _ = Gift().loss(FakeRun(old=old), IN_GROUPS, out)
    assert out.reference is not None
    parts = [
        Gift().loss(
            FakeRun(old=old), IN_GROUPS, replace(out, reference=replace(out.reference, own=own))
        )[0]
        for own in (slice(0, 2), slice(2, 5))
    ]
    for name, value in whole.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], value)


def test_distillation_is_the_authors() -> None:
    case = _numbers("gift/distillation/0/")
    student, heat = case["in/student"].requires_grad_(), float(case["in/T"])
    ours = softened(case["in/teacher"], student, temperature=heat)
    (grad,) = torch.autograd.grad(ours, student)
    torch.testing.assert_close(grad, case["out/grad"], rtol=1e-9, atol=1e-12)


def test_the_reverse_divergence_is_the_authors() -> None:
    case = _numbers("gift/kl/0/")
    student, heat = case["in/student"].requires_grad_(), float(case["in/T"])
    ours = softened(student, case["in/teacher"], temperature=heat)
    (grad,) = torch.autograd.grad(ours, student)
    torch.testing.assert_close(ours.detach(), case["out/loss"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(grad, case["out/grad"], rtol=1e-9, atol=1e-12)


def test_the_penalty_is_the_authors() -> None:
    case = _numbers("gift/awc/")
    now, old, importance = (
        {name.removeprefix(kind): value for name, value in case.items() if name.startswith(kind)}
        for kind in ("in/now/w:", "in/old/w:", "in/f:")
    )
    value = quadratic(importance, now, old)
    torch.testing.assert_close(value, case["out/loss"], rtol=1e-9, atol=1e-12)
    found = gradient_in_({name: importance[name] for name in now}, now, old, strength=1.0)
    for number, grad in enumerate(found.values()):
        torch.testing.assert_close(grad, case[f"out/grad{number}"], rtol=1e-9, atol=1e-12)


def test_consolidation_is_the_element_by_element_one() -> None:
    generator = torch.Generator().manual_seed(0)
    now, start, grad = torch.randn(3, 2, 3, generator=generator, dtype=torch.float64)
    now = now.requires_grad_()
    other = torch.ones(2, dtype=torch.float64, requires_grad=True)  # not reached
    run = FakeRun(
        weights={"w": now, "other": other},
        anchor={"w": start, "other": torch.zeros(2, dtype=torch.float64)},
    )
    terms, added = Gift(consolidation=3.0).after_reference(run, {"w": grad.clone()})
    mean = sum(float(one) ** 2 for one in grad.flatten()) / 6
    wanted = 3 * 1e-6 * (other**2).sum()
    for row in range(2):
        for column in range(3):
            weight = grad[row, column] ** 2 / mean
            wanted = wanted + 3 * weight * (now[row, column] - start[row, column]) ** 2
    torch.testing.assert_close(terms["consolidation"], wanted.detach())
    grads = dict(zip(("w", "other"), torch.autograd.grad(wanted, (now, other)), strict=True))
    assert added.keys() == grads.keys()
    for name, found in added.items():
        torch.testing.assert_close(found, grads[name])


@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan])
def test_a_gradient_without_a_mean_makes_nothing_important(value: float) -> None:
    """At the first step the models agree: the gradient may be 0. With fp16 it may overflow."""
    grads = {"w": torch.tensor([value, 0.0])}
    found = squares_over_mean(grads, {"w": torch.ones(2)}, 1e-6)
    assert found["w"].tolist() == [0.0, 0.0]


def test_what_is_off_needs_nothing() -> None:
    def needed(**values: Any) -> list[str]:
        needs = Gift(**values).needs(first=False)
        return [name for name in vars(needs) if getattr(needs, name)]

    assert needed() == ["previous", "reference", "reference_gradient", "previous_weights"]
    assert needed(strength=0) == ["reference", "reference_gradient", "previous_weights"]
    assert needed(consolidation=0) == ["previous", "reference"]
    assert needed(strength=0, alignment=0) == []
    assert not Gift().needs(first=True).reference
