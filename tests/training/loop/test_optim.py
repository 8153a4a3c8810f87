"""Optimizers: decay on matrices only, LAMB as published, state that survives a save."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import cast

import pytest
import torch

from vlcpctl.training.optimizers import (
    Optimizer,
    decay_groups,
    new_optimizer,
    restore,
    state_tensors,
)
from vlcpctl.training.settings import Settings

NAMES = ["adamw", "adam", "sgd", "lamb"]


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"layer.weight": (4, 3), "layer.bias": (4,), "logit_scale": ()}
    return {
        name: torch.randn(shape, generator=generator).requires_grad_()
        for name, shape in shapes.items()
    }


def _train(weights: dict[str, torch.Tensor], optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in weights.values():
            weight.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)
        optimizer.step()


def test_norms_biases_and_temperature_are_not_decayed() -> None:
    weights = _weights()
    groups = decay_groups(weights, Settings(weight_decay=0.1))
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [weight is weights["layer.weight"] for weight in groups[0]["params"]] == [True]


def test_frozen_weights_are_left_out() -> None:
    weights = _weights()
    weights["logit_scale"].requires_grad_(False)
    groups = decay_groups(weights, Settings())
    assert sum(len(group["params"]) for group in groups) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_optimizer_goes_on_bit_for_bit(name: str) -> None:
    settings = Settings(optimizer=name, lr=0.1)
    whole, cut = _weights(), _weights()
    _train(whole, new_optimizer(whole, settings), range(6))
    first = new_optimizer(cut, settings)
    _train(cut, first, range(3))
    saved = {path: value.clone() for path, value in state_tensors(first, cut).items()}
    second = new_optimizer(cut, settings)
    restore(second, cut, saved)
    _train(cut, second, range(3, 6))
    for path, weight in whole.items():
        assert torch.equal(weight, cut[path])


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_a_restored_state_has_the_memory_format_of_its_weight(name: str) -> None:
    """Of a convolution on a GPU: saved tensors are contiguous, and fused kernels need one order."""
    made = torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    weights = {"conv.weight": made.requires_grad_()}
    settings = Settings(optimizer=name, lr=0.1)
    first = new_optimizer(weights, settings)
    made.grad = torch.ones_like(made)
    first.step()
    live = state_tensors(first, weights)
    second = new_optimizer(weights, settings)
    restore(second, weights, {path: value.contiguous() for path, value in live.items()})
    found = state_tensors(second, weights)
    assert found.keys() == live.keys()
    for path, value in live.items():
        assert torch.equal(found[path], value)
        assert found[path].stride() == value.stride()


def test_adam_couples_its_decay_and_adamw_does_not() -> None:
    moved = {}
    for name in ("adam", "adamw"):
        weights = {"w": torch.ones(2, 2, requires_grad=True)}
        optimizer = new_optimizer(
            weights, replace(Settings(lr=0.1, weight_decay=0.5), optimizer=name)
        )
        weights["w"].grad = torch.zeros(2, 2)
        optimizer.step()
        moved[name] = weights["w"][0, 0].item()
    assert moved["adamw"] == pytest.approx(1 - 0.1 * 0.5)
    assert moved["adam"] == pytest.approx(1 - 0.1)  # the decay alone is normalised to a full step


def _plain_lamb(
    weight: torch.Tensor, grads: list[torch.Tensor], settings: Settings, *, rescales: bool
) -> torch.Tensor:
    """Algorithm 2 of You et al. written out in float64: the weight after all steps."""
    weight, beta1, beta2 = weight.double(), *settings.betas
    decay = settings.weight_decay if rescales else 0.0
    mean = square = torch.zeros_like(weight)
    for count, gradient in enumerate(grads, start=1):
        grad = gradient.double()
        mean = beta1 * mean + (1 - beta1) * grad
        square = beta2 * square + (1 - beta2) * grad**2
        corrected = (mean / (1 - beta1**count), square / (1 - beta2**count))
        direction = corrected[0] / (corrected[1].sqrt() + settings.eps) + decay * weight
        trust = weight.norm() / direction.norm() if rescales else 1.0
        weight = weight - settings.lr * trust * direction
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_lamb_agrees_with_the_plain_formula(decay: float) -> None:
    settings = Settings(optimizer="lamb", lr=0.01, weight_decay=decay)
    weights = {n: w.detach().double().requires_grad_() for n, w in _weights().items()}
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    grads: dict[str, list[torch.Tensor]] = {name: [] for name in weights}
    optimizer = new_optimizer(weights, settings)
    for step in range(4):
        _train(weights, optimizer, range(step, step + 1))
        for name, weight in weights.items():
            assert weight.grad is not None
            grads[name].append(weight.grad.clone())
    for name, weight in weights.items():
        rescales = weight.ndim >= 2  # also without decay: else LAMB would be Adam
        plain = _plain_lamb(start[name], grads[name], settings, rescales=rescales)
        torch.testing.assert_close(weight.detach(), plain, rtol=0, atol=1e-12)


def test_lamb_counts_the_steps_of_each_weight() -> None:
    """A weight that gets its first gradient late is corrected as at its own first step."""
    settings = Settings(optimizer="lamb", lr=0.1, weight_decay=0.01)
    weights = _weights()
    optimizer = new_optimizer(weights, settings)
    _train(weights, optimizer, range(2))
    late = torch.ones(2, 2, requires_grad=True)
    optimizer.param_groups[0]["params"].append(late)
    late.grad = torch.full((2, 2), 0.5)
    optimizer.step()
    first = {"late": torch.ones(2, 2, requires_grad=True)}
    first["late"].grad = torch.full((2, 2), 0.5)
    new_optimizer(first, settings).step()
    assert torch.equal(late, first["late"])


@pytest.mark.parametrize("name", ["adamw", "adam"])
def test_fused_updates_are_those_of_torch(name: str) -> None:
    settings = Settings(optimizer=name, lr=0.1, weight_decay=0.3)
    ours, theirs = _weights(), _weights()
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    groups = [
        {"params": [theirs["layer.weight"]], "weight_decay": 0.3},
        {"params": [theirs["layer.bias"], theirs["logit_scale"]], "weight_decay": 0.0},
    ]
    _train(ours, new_optimizer(ours, settings), range(5))
    looped = kind(groups, lr=0.1, betas=settings.betas, eps=settings.eps, foreach=False)
    _train(theirs, looped, range(5))
    for path, weight in ours.items():
        torch.testing.assert_close(weight, theirs[path], rtol=1e-5, atol=1e-6)


def test_no_optimizer_of_ours_imports_dynamo() -> None:
    lines = (
        "import sys, torch",
        "from vlcpctl.training.settings import Settings",
        "from vlcpctl.training.optimizers import new_optimizer",
        "weights = {'w': torch.ones(2, 2, requires_grad=True)}",
        "weights['w'].grad = torch.ones(2, 2)",
        "for name in ('adamw', 'adam', 'sgd'):",
        "    new_optimizer(weights, Settings(optimizer=name)).step()",
        "print(sorted({'torch._dynamo', 'timm'} & set(sys.modules)))",
    )
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["adamw", "adam", "lamb"])
def test_a_step_on_a_device_keeps_its_state_there_and_reads_nothing(name: str) -> None:
    """Reading a value of a meta tensor raises."""
    weights = {
        "w": torch.empty(3, 2, device="meta", requires_grad=True),
        "b": torch.empty(2, device="meta", requires_grad=True),
    }
    optimizer = new_optimizer(weights, Settings(optimizer=name))
    optimizer.halted = torch.zeros((), device="meta")
    for _ in range(2):
        for weight in weights.values():
            weight.grad = torch.empty_like(weight)
        optimizer.step()
    devices = {
        path.rpartition("/")[2]: value.device.type
        for path, value in state_tensors(optimizer, weights).items()
    }
    step = "cpu" if name == "lamb" else "meta"
    assert devices == {"exp_avg": "meta", "exp_avg_sq": "meta", "step": step}


@pytest.mark.parametrize("name", NAMES)
def test_a_halted_optimizer_changes_nothing(name: str) -> None:
    weights = _weights()
    optimizer = new_optimizer(weights, Settings(optimizer=name, lr=0.1))
    _train(weights, optimizer, range(2))
    before = {
        path: value.detach().clone()
        for path, value in {**weights, **state_tensors(optimizer, weights)}.items()
    }
    optimizer.halted = torch.ones(())
    for weight in weights.values():
        weight.grad = torch.full_like(weight, float("nan"))
    optimizer.step()
    after = {**weights, **state_tensors(optimizer, weights)}
    assert all(torch.equal(value, before[path]) for path, value in after.items())


@pytest.mark.parametrize("name", NAMES)
def test_fp16_skips_an_update_whose_gradients_overflowed(name: str) -> None:
    weights, plain = _weights(), _weights()
    optimizer = new_optimizer(weights, Settings(optimizer=name, lr=0.1))
    expected = new_optimizer(plain, Settings(optimizer=name, lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(4):
        for weight, other in zip(weights.values(), plain.values(), strict=True):
            gradient = torch.full_like(weight, 0.25 * (step + 1))
            other.grad = gradient.clone()
            scaler.scale(torch.zeros(()))
            weight.grad = gradient * scaler.get_scale()
        if step == 2:
            weights["layer.bias"].grad = torch.full((4,), float("inf"))
        scaler.unscale_(cast("torch.optim.Optimizer", optimizer))
        scaler.step(cast("torch.optim.Optimizer", optimizer))
        scaler.update()
        if step != 2:
            expected.step()
    assert scaler.get_scale() == 2.0
    for path, weight in weights.items():
        assert torch.equal(weight, plain[path])
    ours, theirs = state_tensors(optimizer, weights), state_tensors(expected, plain)
    assert all(torch.equal(value, theirs[path]) for path, value in ours.items())
