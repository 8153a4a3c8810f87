"""Optimizers: decay on matrices only, LAMB as published, state that survives a save."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vlcpctl.training.config.settings import Settings
from vlcpctl.training.loop.optim import decay_groups, new_optimizer, restore, state_tensors

NAMES = ["adamw", "adam", "sgd", "lamb"]


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"layer.weight": (4, 3), "layer.bias": (4,), "logit_scale": ()}
    return {
        name: torch.randn(shape, generator=generator).requires_grad_()
        for name, shape in shapes.items()
    }


def _train(
    weights: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer, steps: range
) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in weights.values():
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.step()


def test_norms_biases_and_temperature_are_not_decayed() -> None:
    weights = _weights()
    groups = decay_groups(weights, Settings(weight_decay=0.1))
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [weight is weights["layer.weight"] for weight in groups[0]["params"]] == [True]


def test_papers_that_decay_everything_can() -> None:
    groups = decay_groups(_weights(), Settings(weight_decay=0.1, decay="all"))
    assert [len(group["params"]) for group in groups] == [3]


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


def test_lamb_step_is_algorithm_2_written_out() -> None:
    settings = Settings(optimizer="lamb", lr=0.1, weight_decay=0.01)
    weights = {"w": torch.tensor([[3.0, 4.0]], requires_grad=True)}
    optimizer = new_optimizer(weights, settings)
    weights["w"].grad = torch.tensor([[0.5, -2.0]])
    optimizer.step()
    # After one step the corrected moments are g and g squared: Adam's direction is the sign.
    direction = torch.tensor([[1.0, -1.0]]) + 0.01 * torch.tensor([[3.0, 4.0]])
    expected = torch.tensor([[3.0, 4.0]]) - 0.1 * 5.0 / direction.norm() * direction
    torch.testing.assert_close(weights["w"].detach(), expected, rtol=1e-5, atol=1e-6)


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
