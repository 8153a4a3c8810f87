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


def test_lucir_replays_a_buffer_of_any_policy_and_the_plan_says_so(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = second(world, first, tmp_path / "01", "lucir")
    said = "lucir replays a buffer made by reservoir; its paper has herding"
    assert said not in lines_of(step)
    other = replace(step, buffer=world.buffers["reservoir"][0])
    assert said in lines_of(other)
    train_step(other)


def test_a_queue_that_fills_is_said_to_raise_the_loss(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    said = "ctp: the loss rises in the first 3 steps, while its queue of "
    batch = request(world, "ctp", 0, tmp_path, buffered=False).settings.batch_size

    def lines(*given: str) -> str:
        step = second(world, first, tmp_path / "01", "ctp", *given)
        return lines_of(replace(step, settings=replace(step.settings, negatives="all")))

    assert said in lines(f"ctp.queue={3 * batch - 1}")
    assert "the loss rises" not in lines("ctp.queue=0")
    assert "the loss rises" not in lines(f"ctp.queue={3 * batch}", "ctp.keep_queue=true")
    assert "fusion" not in lines()


def test_geodl_says_which_dimension_it_chose(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    step = second(world, first, tmp_path / "01", "geodl")
    assert "  geodl: k = 1 of 8 channels (geodl.dimensions)" in lines_of(step)
    # Nothing is distilled without a previous model, or at strength 0.
    assert "k = " not in lines_of(request(world, "geodl", 0, tmp_path, buffered=False))
    assert "k = " not in lines_of(second(world, first, tmp_path, "geodl", "geodl.strength=0"))


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


def test_a_run_of_the_former_default_does_not_resume_as_another(
    world: TrainingWorld, first: Path, tmp_path: Path
) -> None:
    former = second(world, first, tmp_path / "01", "geodl", "geodl.dimensions=0")
    train_step(former)
    train_step(former)  # it is finished
    with pytest.raises(Exception, match=r"hyper.geodl.dimensions was 0.* and is now 0.0615"):
        train_step(second(world, first, tmp_path / "01", "geodl"))
