"""The gradients of a step of GIFT, by the procedure of its authors' code with autograd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.training import column, in_double_precision, journal, with_settings
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, softmax

from vlcpctl.core.batch import Batch
from vlcpctl.core.method import Run
from vlcpctl.distributed.world import World
from vlcpctl.methods.gift import Gift
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.beside import BesideEncoder, backward_apart
from vlcpctl.training.run import TrainRun
from vlcpctl.training.step import OptimizerStep
from vlcpctl.training.train_step import train_step

Gradients = dict[str, Tensor]


def _gradients(run: TrainRun) -> Gradients:
    return {name: one.grad.clone() for name, one in run.weights.items() if one.grad is not None}


def _similarities(run: TrainRun, batch: Batch, scale: Tensor, weights: Any = None) -> Tensor:
    inputs = run.encoder.inputs(batch.images, batch.texts)
    image, text = run.encoder.features(*inputs, weights)
    assert image is not None
    assert text is not None
    return scale * normalize(image, dim=1) @ normalize(text, dim=1).T


def _naive(run: TrainRun, batch: Batch) -> tuple[Gradients, float]:
    """Two backward passes: of the reference, and then of the rest with a penalty that it weighs."""
    assert batch.reference is not None
    weights = run.weights
    frozen = weights["logit_scale"].exp().detach()
    for one in weights.values():
        one.grad = None
    with torch.no_grad():
        then = _similarities(run, batch.reference, frozen, run.previous_weights)
    now = _similarities(run, batch.reference, frozen)
    loss = now.new_zeros(())
    for old, new in ((then, now), (then.T, now.T)):
        loss = loss + 4 * cross_entropy(new / 2, softmax(old / 2, 1))
        loss = loss + 0.25 * cross_entropy(new, torch.arange(len(new)), label_smoothing=0.2)
    loss.backward()
    penalty = now.new_zeros(())
    for name, one in weights.items():
        importance = torch.full_like(one, 1e-6)
        if one.grad is not None:
            importance = one.grad.clone() ** 2
            importance /= importance.mean()
        penalty = penalty + (importance * (one - run.anchor[name]) ** 2).sum()
    logits = _similarities(run, batch, weights["logit_scale"].exp())
    rows = torch.arange(len(logits))
    base = (cross_entropy(logits, rows) + cross_entropy(logits.T, rows)) / 2
    (base + penalty).backward()
    return _gradients(run), penalty.item()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Gradients, Gradients, float]]:
    """What the steps of this test have computed, in double precision, and what is expected."""
    update, forward = OptimizerStep._update, OptimizerStep._forward_backward
    found: list[tuple[Gradients, Gradients, float]] = []
    batches: list[Batch] = []

    def remember(step: OptimizerStep, batch: Batch) -> Any:
        batches.append(batch)
        return forward(step, batch)

    def compare(step: OptimizerStep) -> bool:
        ours = _gradients(step.run)
        if batches[-1].reference is not None:
            with torch.enable_grad():
                found.append((ours, *_naive(step.run, batches[-1])))
            for name, one in step.run.weights.items():
                one.grad = ours.get(name)
        return update(step)

    in_double_precision(monkeypatch)
    monkeypatch.setattr(OptimizerStep, "_forward_backward", remember)
    monkeypatch.setattr(OptimizerStep, "_update", compare)
    return found


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_they_are_those_of_two_backward_passes(
    world: TrainingWorld,
    tmp_path: Path,
    compared: list[tuple[Gradients, Gradients, float]],
    micro_batch: int | None,
) -> None:
    for number in range(2):
        step = request(world, "gift", number, tmp_path, buffered=False)
        # A learned temperature gets its gradient from the loss directly.
        learns = None if number else "learn:0.1"
        train_step(with_settings(step, micro_batch=micro_batch, steps=3, temperature=learns))
    assert len(compared) == 3
    rows = journal(tmp_path / "01")
    for (ours, naive, penalty), row in zip(compared, rows, strict=True):
        assert ours.keys() == naive.keys()
        for name, grad in naive.items():
            torch.testing.assert_close(ours[name], grad, rtol=1e-6, atol=1e-10)
        assert row["gift/consolidation"] == pytest.approx(penalty, rel=1e-8)
        terms = [value for name, value in row.items() if name.startswith(("gift/", "contrastive"))]
        assert row["loss"] == pytest.approx(sum(terms))
    assert compared[0][2] == 0  # nothing has moved
    assert compared[-1][2] > 0


def test_fp16_weighs_weights_as_single_precision_does(
    world: TrainingWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, lengths = {}, {}
    consolidated = Gift.after_reference

    def measure(method: Gift, run: Run, grads: Mapping[str, Tensor]) -> Any:
        lengths[run.step] = torch.stack([grad.norm() for grad in grads.values()]).norm().item()
        return consolidated(method, run, grads)

    monkeypatch.setattr(Gift, "after_reference", measure)
    train_step(request(world, "gift", 0, tmp_path / "fp32", buffered=False))
    for precision in ("fp32", "fp16"):
        step = request(world, "gift", 1, tmp_path / "fp32", buffered=False)
        out = tmp_path / precision / "01"
        train_step(with_settings(replace(step, out=out), precision=precision, steps=4))
        found[precision] = column(out, "gift/consolidation")
        found[f"{precision} lengths"] = [*lengths.values()]
    assert found["fp16"][-1] > 0
    assert found["fp16"] == pytest.approx(found["fp32"], rel=0.1)
    assert found["fp16 lengths"] == pytest.approx(found["fp32 lengths"], rel=0.1)


def test_a_weight_that_the_loss_also_uses_directly_keeps_both_gradients() -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    other = torch.ones(2, requires_grad=True)
    (3 * weight + 5 * other).sum().backward()  # by a loss that uses both without the encoders
    run: Any = SimpleNamespace(weights={"weight": weight, "other": other}, world=World())
    reference = BesideEncoder([slice(None)], lambda _: (weight * weight, torch.zeros(2)))
    apart = backward_apart(run, reference, [torch.tensor([10.0, 1.0]), None])
    assert {name: grad.tolist() for name, grad in apart.items()} == {"weight": [20.0, 4.0]}
    assert weight.grad is not None
    assert other.grad is not None
    assert (weight.grad.tolist(), other.grad.tolist()) == ([23.0, 7.0], [5.0, 5.0])
