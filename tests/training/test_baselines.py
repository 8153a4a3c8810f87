"""Baselines inside a real train-step: nothing at zero strength, something otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.training import column, with_settings

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.params import blend_
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.buffer import update as buffers
from vlcpctl.data.buffer.policies import BufferSize
from vlcpctl.data.loading.loader import PlannedBatches
from vlcpctl.data.precomputed.features import read_features
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.manifest import read_manifest
from vlcpctl.models.dual_encoder import WEIGHTS_FILE as WEIGHTS
from vlcpctl.testing.battery import (
    TrainingWorld,
    request,
    stored_projections,
)
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.methods import compose, settings_of_methods
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step

WITHOUT = {"der": ["der.alpha=0"], "derpp": ["derpp.alpha=0", "derpp.beta=0"]}
# Settings with which each method has an effect even without a buffer.
HELD = {"co2l": ["co2l.asymmetric=false"], "geodl": [], "ema": []}


def _step(
    world: TrainingWorld, root: Path, name: str, number: int, *assignments: str
) -> TrainRequest:
    step = request(world, name, number, root, buffered=False)
    return replace(step, methods=compose(name, assignments), buffer=None)


def _trained(world: TrainingWorld, root: Path, name: str, *assignments: str) -> bytes:
    for number in range(2):
        train_step(_step(world, root, name, number, *assignments))
    return (root / "01" / WEIGHTS).read_bytes()


@pytest.fixture(scope="module")
def plain(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _trained(world, tmp_path_factory.mktemp("plain"), "seqf")


@pytest.mark.parametrize("name", [*WITHOUT, *HELD])
def test_only_without_strength_it_is_finetuning(
    world: TrainingWorld, plain: bytes, tmp_path: Path, name: str
) -> None:
    found = _trained(world, tmp_path / "found", name, *(WITHOUT.get(name) or HELD[name]))
    assert (found == plain) is (name in WITHOUT)


def test_co2l_sums_the_directions_where_the_base_loss_does(
    world: TrainingWorld, tmp_path: Path
) -> None:
    kept = {}
    for name in ("seqf", "co2l"):
        step = _step(world, tmp_path / name, name, 0)
        train_step(with_settings(step, base_loss="sum"))
        kept[name] = (step.out / WEIGHTS).read_bytes()
    assert kept["co2l"] == kept["seqf"]


def test_the_model_of_ema_is_the_average_of_the_weights_passed(
    world: TrainingWorld, tmp_path: Path
) -> None:
    for steps in range(1, 4):
        step = _step(world, tmp_path / str(steps), "seqf", 0)
        train_step(with_settings(step, steps=steps, schedule="constant"))
    step = _step(world, tmp_path / "ema", "ema", 0, "ema.decay=0.75")
    train_step(with_settings(step, steps=3, schedule="constant"))
    start = _step(world, tmp_path / "start", "seqf", 0)
    train_step(with_settings(start, steps=1, lr=1e-30, weight_decay=0.0))
    average = load_file(start.out / WEIGHTS)
    for steps in range(1, 4):
        blend_(average, 0.75, (0.25, load_file(tmp_path / str(steps) / "00" / WEIGHTS)))
    torch.testing.assert_close(load_file(step.out / WEIGHTS), average, rtol=1e-6, atol=1e-7)


def test_the_average_is_what_is_validated_and_measured(
    world: TrainingWorld, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    found = {}
    for name, decay in (("ema", 1.0), ("ema", 0.5), ("ewc", 0.0), ("ema+ewc", 1.0)):
        step = _step(world, tmp_path / f"{name}-{decay}", "seqf", 0)
        methods = compose(name, [f"ema.decay={decay}"] if "ema" in name else [])
        train_step(replace(step, tasks=(task,), methods=methods))
        found[name, decay] = column(step.out, "val_loss")
    still, moving = found["ema", 1.0], found["ema", 0.5]
    assert len(still) == len(moving) == 2
    assert still[0] == still[1] != moving[0] != moving[1]
    fisher = [
        load_file(tmp_path / name / "00" / "method" / "ewc" / "fisher.safetensors")["visual.proj"]
        for name in ("ewc-0.0", "ema+ewc-1.0")
    ]
    assert not torch.equal(*fisher)


def test_the_best_average_is_kept_where_the_best_are(world: TrainingWorld, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", splits={"train": 12, "val": 8})
    step = replace(_step(world, tmp_path / "best", "ema", 0, "ema.decay=1.0"), tasks=(task,))
    train_step(with_settings(step, keep="best:val_loss", lr=0.3))
    start = replace(_step(world, tmp_path / "start", "seqf", 0), tasks=(task,))
    train_step(with_settings(start, steps=1, lr=1e-30, weight_decay=0.0))
    best, first = load_file(step.out / WEIGHTS), load_file(start.out / WEIGHTS)
    torch.testing.assert_close(best, first, rtol=0, atol=1e-20)


def test_der_declares_its_replay_and_answers_to_the_name_of_the_paper() -> None:
    assert [method.name for method in compose("der++")] == ["derpp"]
    assert [method.name for method in compose("ctp+der++")] == ["ctp", "derpp"]
    assert settings_of_methods(compose("der")) == {"replay": "share=0.5"}


def test_replayed_pairs_bring_what_the_buffer_stores_of_them(
    world: TrainingWorld, tmp_path: Path
) -> None:
    for number in range(2):
        step = request(world, "der", number, tmp_path, buffered=False)
        if number == 0:
            train_step(step)
    plan = make_plan(step)
    buffer = open_task(step.buffer)
    found, places = read_features(buffer), buffer.split("train").keys
    dataset = PlannedBatches(
        splits=plan.sampler.splits,
        plan=plan.sampler.plan,
        transform=ImageTransform(image_size=16, mean=(0, 0, 0), std=(1, 1, 1)),
        tokenise=lambda texts: torch.zeros(len(texts), 1),
        seed=0,
        part=lambda count: slice(0, 1),
        buffer_source=plan.sampler.buffer_source,
        stored=plan.stored,
    )
    for number in range(4):
        batch = dataset[number]
        rows = [places.index(batch.keys[row]) for row in batch.replayed.nonzero().flatten()]
        assert len(rows) == 2
        assert batch.stored is not None
        expected = found.of(np.array(rows), np.zeros(2, dtype=np.int64))
        assert np.array_equal(batch.stored.image, expected[0])
        assert np.array_equal(batch.stored.text, expected[1])


def test_replayed_pairs_of_der_take_no_part_in_the_contrast(
    world: TrainingWorld, tmp_path: Path
) -> None:
    for name in ("der", "seqf"):
        train_step(_step(world, tmp_path / name, "seqf", 0))
    der = request(world, "der", 1, tmp_path / "der", buffered=False)
    # Not Adam, which makes much of the rounding of gradients that are 0.
    plainly = {"optimizer": "sgd", "lr": 0.1}
    der = replace(der, methods=compose("der", ["der.alpha=1e-30"]))
    train_step(with_settings(der, **plainly))
    plain = replace(_step(world, tmp_path / "seqf", "seqf", 1), settings=der.settings)
    train_step(with_settings(plain, **plainly, batch_size=2))
    found, expected = load_file(der.out / WEIGHTS), load_file(plain.out / WEIGHTS)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def _buffer(world: TrainingWorld, out: Path, *, width: int = 8, made_by: str | None = None) -> Path:
    """A buffer of the first task with features of so many channels."""
    update = buffers.BufferRequest(
        task=open_task(world.tasks[0]),
        previous=None,
        policy="ring",
        size=BufferSize(count=6, text=6),
        seed=0,
        checkpoint=made_by,
        stores_features=True,
    )
    project: Any = partial(stored_projections, width=width)
    buffers.write_buffer(out, update, buffers.plan_update(update), project, project)
    return out


def test_features_of_another_checkpoint_are_told_and_of_another_width_refused(
    world: TrainingWorld, tmp_path: Path
) -> None:
    train_step(request(world, "der", 0, tmp_path, buffered=False))
    step = request(world, "der", 1, tmp_path, buffered=False)
    assert step.previous is not None
    own = read_manifest(step.previous, "checkpoint")["content"]
    made = _buffer(world, tmp_path / "own", made_by=own)
    assert make_plan(replace(step, buffer=made)).warnings == ()
    other = _buffer(world, tmp_path / "other", made_by="0" * 32)
    (warning,) = make_plan(replace(step, buffer=other)).warnings
    assert f"content {'0' * 32}, not {own}" in warning
    narrow = _buffer(world, tmp_path / "narrow", width=5)
    with pytest.raises(Incompatible, match="stores features of 5 channels, but the model has 8"):
        train_step(replace(step, buffer=narrow))
