"""Baselines inside a real train-step: nothing at zero strength, something otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.battery import World, make_world, request
from support.tiny_stream import make_task

from vlcpctl.core.errors import UsageError
from vlcpctl.core.params import blend_
from vlcpctl.engine.compose import compose
from vlcpctl.engine.request import Request
from vlcpctl.engine.train import train_step

WEIGHTS = "open_clip_model.safetensors"
WITHOUT = {
    "co2l": ["co2l.strength=0", "co2l.asymmetric=false"],
    "geodl": ["geodl.strength=0"],
    "ema": ["ema.decay=0"],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


def _step(world: World, root: Path, name: str, number: int, *assignments: str) -> Request:
    step = request(world, name, number, root, buffered=False)
    return replace(step, methods=compose(name, assignments), buffer=None)


def _trained(world: World, root: Path, name: str, *assignments: str) -> bytes:
    for number in range(2):
        train_step(_step(world, root, name, number, *assignments))
    return (root / "01" / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", WITHOUT)
def test_zero_strength_is_finetuning_byte_for_byte(world: World, tmp_path: Path, name: str) -> None:
    plain = _trained(world, tmp_path / "plain", "seqf")
    assert _trained(world, tmp_path / "free", name, *WITHOUT[name]) == plain
    half = [each for each in WITHOUT[name] if each == "co2l.asymmetric=false"]
    assert _trained(world, tmp_path / "held", name, *half) != plain


def test_co2l_sums_the_directions_where_the_base_loss_does(world: World, tmp_path: Path) -> None:
    kept = {}
    for name in ("seqf", "co2l"):
        step = _step(world, tmp_path / name, name, 0)
        train_step(replace(step, settings=replace(step.settings, base_loss="sum")))
        kept[name] = (step.out / WEIGHTS).read_bytes()
    assert kept["co2l"] == kept["seqf"]


def test_co2l_without_a_buffer_is_refused(world: World, tmp_path: Path) -> None:
    train_step(_step(world, tmp_path, "co2l", 0))
    with pytest.raises(UsageError, match="method co2l needs --buffer after the first task"):
        train_step(_step(world, tmp_path, "co2l", 1))


def test_the_model_of_ema_is_the_average_of_the_weights_passed(
    world: World, tmp_path: Path
) -> None:
    for steps in range(1, 4):
        step = _step(world, tmp_path / str(steps), "seqf", 0)
        settings = replace(step.settings, steps=steps, schedule="constant")
        train_step(replace(step, settings=settings))
    step = _step(world, tmp_path / "ema", "ema", 0, "ema.decay=0.75")
    train_step(replace(step, settings=replace(settings, steps=3)))
    start = _step(world, tmp_path / "start", "seqf", 0)
    train_step(replace(start, settings=replace(settings, steps=1, lr=1e-30, weight_decay=0.0)))
    average = load_file(start.out / WEIGHTS)
    for steps in range(1, 4):
        blend_(average, 0.75, (0.25, load_file(tmp_path / str(steps) / "00" / WEIGHTS)))
    torch.testing.assert_close(load_file(step.out / WEIGHTS), average, rtol=1e-6, atol=1e-7)


def test_the_average_is_what_is_validated_and_measured(world: World, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    found = {}
    for name, decay in (("ema", 1.0), ("ema", 0.5), ("ewc", 0.0), ("ema+ewc", 1.0)):
        step = _step(world, tmp_path / f"{name}-{decay}", "seqf", 0)
        methods = compose(name, [f"ema.decay={decay}"] if "ema" in name else [])
        train_step(replace(step, tasks=(task,), methods=methods))
        rows = map(json.loads, (step.out / "metrics.jsonl").read_text().splitlines())
        found[name, decay] = [row["val_loss"] for row in rows if "val_loss" in row]
    still, moving = found["ema", 1.0], found["ema", 0.5]
    assert len(still) == len(moving) == 2
    assert still[0] == still[1] != moving[0] != moving[1]
    fisher = [
        load_file(tmp_path / name / "00" / "method" / "ewc" / "fisher.safetensors")["visual.proj"]
        for name in ("ewc-0.0", "ema+ewc-1.0")
    ]
    assert not torch.equal(*fisher)


def test_the_best_average_is_kept_where_the_best_are(world: World, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    step = replace(_step(world, tmp_path / "best", "ema", 0, "ema.decay=1.0"), tasks=(task,))
    train_step(replace(step, settings=replace(step.settings, keep="best:val_loss", lr=0.3)))
    start = replace(_step(world, tmp_path / "start", "seqf", 0), tasks=(task,))
    settings = replace(start.settings, steps=1, lr=1e-30, weight_decay=0.0)
    train_step(replace(start, settings=settings))
    best, first = load_file(step.out / WEIGHTS), load_file(start.out / WEIGHTS)
    torch.testing.assert_close(best, first, rtol=0, atol=1e-20)


def test_the_average_goes_with_methods_that_write_weights() -> None:
    assert [method.name for method in compose("ema+dha")] == ["dha", "ema"]
