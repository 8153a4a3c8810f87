"""Batches of presets cut to small data: the size, what is said and recorded, and reruns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import config_id
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_task
from vlcpctl.training.adaptation import cut
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import lines, make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step


def of_preset(step: TrainRequest, size: int = 64, **settings: object) -> TrainRequest:
    """The request with a batch size that no option gave."""
    origins = {**step.origins, "batch_size": "preset tiny, not in the paper"}
    changed = replace(step.settings, batch_size=size, **settings)  # type: ignore[arg-type]
    return replace(step, settings=changed, origins=origins)


@pytest.fixture
def first(world: TrainingWorld, tmp_path: Path) -> TrainRequest:
    return of_preset(request(world, "seqf", 0, tmp_path, buffered=False))


def test_a_batch_larger_than_the_data_is_cut_and_the_plan_says_so(first: TrainRequest) -> None:
    plan = make_plan(first)
    assert plan.request.settings.batch_size == 12
    assert plan.sampler.epoch_steps == 1
    said = "batch size 64 from preset tiny is larger than the 12 pairs; using 12"
    assert f"  note: {said}" in list(lines(plan))
    assert vars(make_plan(plan.request).request.settings) == vars(plan.request.settings)


def test_the_cut_batch_is_recorded_and_found_again(first: TrainRequest) -> None:
    train_step(first)
    made = CheckpointManifest.read(first.out)
    assert made.identity["settings"]["batch_size"] == 12
    assert made.asked == {"batch_size": 64}
    assert made.origins["batch_size"].endswith(", cut from 64")
    before = (first.out / "checkpoint.json").stat().st_mtime_ns
    train_step(first)
    assert (first.out / "checkpoint.json").stat().st_mtime_ns == before


def test_seeds_whose_data_differ_in_size_have_one_configuration(
    first: TrainRequest, tmp_path: Path
) -> None:
    train_step(first)
    train_step(
        replace(first, limit=None, tasks=(make_task(tmp_path / "small", 7),), out=tmp_path / "1")
    )
    one, other = (CheckpointManifest.read(path) for path in (first.out, tmp_path / "1"))
    assert one.identity["settings"]["batch_size"] != other.identity["settings"]["batch_size"]
    assert config_id(one) == config_id(other)


@pytest.mark.parametrize("pairs", [2, 3])
def test_a_week_of_two_pairs_is_trained_on(first: TrainRequest, tmp_path: Path, pairs: int) -> None:
    step = replace(first, tasks=(make_task(tmp_path / "week", pairs),), methods=compose("ctp"))
    train_step(step)
    made = CheckpointManifest.read(step.out)
    assert (made.identity["settings"]["batch_size"], made.pairs) == (pairs, 2 * pairs)


def test_a_limit_counts(first: TrainRequest) -> None:
    assert make_plan(replace(first, limit=5)).request.settings.batch_size == 5


def test_a_buffer_fills_the_batch_with_replayed_pairs(world: TrainingWorld, tmp_path: Path) -> None:
    train_step(request(world, "seqf", 0, tmp_path, buffered=False))
    second = request(world, "er", 1, tmp_path, buffered=True)
    assert make_plan(of_preset(second, 18)).request.settings.batch_size == 18
    assert make_plan(of_preset(second)).request.settings.batch_size == 18
    shared = make_plan(of_preset(second, replay="share=0.25"))
    # Four replayed pairs are a quarter of 16; the 12 new ones fill the rest.
    assert shared.request.settings.batch_size == 16
    assert "is larger than the 12 pairs; using 16" in shared.request.notes[0]
    assert shared.sampler.left_out == 0


@pytest.mark.parametrize(
    ("most", "processes", "micro", "batch", "chunk"),
    [
        (13, 4, None, 12, 3),
        (12, 1, 64, 12, 12),
        (12, 1, 5, 12, 4),
        (101, 1, 64, 100, 50),
        (100, 2, 16, 96, 12),
    ],
)
def test_processes_and_micro_batches_leave_no_rest(
    most: int, processes: int, micro: int | None, batch: int, chunk: int
) -> None:
    assert cut(most, micro, processes) == (batch, chunk)
