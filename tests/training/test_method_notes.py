"""What the plan says of a method's choices by batch, width and buffer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.battery import TrainingWorld, make_world, request
from vlcpctl.training import notes
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> TrainingWorld:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00."""
    root = tmp_path_factory.mktemp("first")
    train_step(request(world, "seqf", 0, root, buffered=False))
    return root


def second(world: TrainingWorld, first: Path, out: Path, names: str, *given: str) -> TrainRequest:
    step = request(world, names, 1, first, buffered=False)
    return replace(step, out=out, run="seqf", methods=compose(names, given))


def lines_of(step: TrainRequest) -> str:
    return "\n".join(notes.lines(make_plan(step)))


def test_a_dimension_above_half_of_the_width_is_warned_of_and_recorded(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = second(world, first, tmp_path / "01", "geodl", "geodl.dimensions=0")
    step = replace(step, settings=replace(step.settings, batch_size=7))
    assert "k = 5 of 8 channels, two fewer than the pairs of a batch" in lines_of(step)
    train_step(step)
    recorded = read_manifest(step.out, "checkpoint")["warnings"]
    assert [one for one in recorded if "k = 5 is more than half of the 8 channels" in one]
    half = second(world, first, tmp_path, "geodl", "geodl.dimensions=0.5")
    half = replace(half, settings=step.settings)
    assert "more than half" not in str(make_plan(half).warnings)
