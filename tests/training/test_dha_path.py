"""DHA inside a real train-step: fifty steps by Algorithm 1 written out by hand, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.marks import mostly_slow
from support.training import with_settings
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from vlcpctl.core.batch import Batch
from vlcpctl.models import encoders
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.loop import TrainingLoop
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

WEIGHTS = "open_clip_model.safetensors"
RATE, STEPS = 0.05, 50


@pytest.fixture(scope="module")
def step(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> TrainRequest:
    """Fifty steps of the second task, with plain gradient descent."""
    root = tmp_path_factory.mktemp("run")
    train_step(request(world, "dha", 0, root, buffered=False))
    asked = request(world, "dha", 1, root, buffered=False)
    return with_settings(
        asked,
        optimizer="sgd",
        momentum=0.0,
        weight_decay=0.0,
        schedule="constant",
        warmup=0.0,
        clip_norm=None,
        lr=RATE,
        steps=STEPS,
    )


def mixed(keep: float, one: Tensor, other: Tensor) -> Tensor:
    return torch.add(one * keep, other, alpha=1 - keep)


def by_hand(start: Path, batches: list[Batch], *, dynamic: bool) -> dict[str, Tensor]:
    """Eqs. 7-10; both right-hand sides use values of the previous iteration."""
    encoder = encoders.load(start)
    encoder.module.train()
    weights = encoder.weights()
    main = {name: weight.detach().clone() for name, weight in weights.items()}
    history = {name: weight.clone() for name, weight in main.items()}
    for number, batch in enumerate(batches, start=1):
        before = {name: mixed(0.995, main[name], history[name]) for name in main}
        if dynamic and number % 5 == 0:
            history = {name: mixed(0.985, history[name], main[name]) for name in main}
        for name, weight in weights.items():
            weight.data.copy_(before[name])
        image, text = encoder.features(*encoder.inputs(batch.images, batch.texts))
        logits = weights["logit_scale"].exp() * normalize(image, dim=1) @ normalize(text, dim=1).T
        labels = torch.arange(len(logits))
        loss = (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2
        moving = {name: weight for name, weight in weights.items() if weight.requires_grad}
        gradients = torch.autograd.grad(loss, list(moving.values()))
        main = dict(before)
        for name, gradient in zip(moving, gradients, strict=True):
            main[name] = torch.add(before[name], gradient, alpha=-RATE)
    return main


@pytest.mark.parametrize("dynamic", mostly_slow([True, False], kept=[True]))
def test_fifty_steps_are_those_of_the_algorithm(
    step: TrainRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dynamic: bool
) -> None:
    seen: list[Batch] = []
    asked = TrainingLoop._step

    def watched(loop: TrainingLoop, phase: object, once: object, batch: Batch) -> None:
        seen.append(batch)
        asked(loop, phase, once, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainingLoop, "_step", watched)
    methods = compose("dha", [f"dha.dynamic={dynamic}"])
    train_step(replace(step, methods=methods, out=tmp_path / "out"))
    assert len(seen) == STEPS
    found = load_file(tmp_path / "out" / WEIGHTS)
    assert step.previous is not None
    expected = by_hand(step.previous, seen, dynamic=dynamic)
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name
    wrong = by_hand(step.previous, seen, dynamic=not dynamic)
    assert not torch.equal(found["visual.proj"], wrong["visual.proj"])
