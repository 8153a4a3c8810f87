"""What a train-step continues from: mistakes are warned of, recorded, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.program import run_program

from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step


@pytest.fixture(scope="module")
def first(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first task's checkpoint, 00."""
    root = tmp_path_factory.mktemp("first")
    train_step(request(world, "er", 0, root, buffered=False))
    return root


@pytest.fixture
def second(world: TrainingWorld, first: Path, tmp_path: Path) -> TrainRequest:
    """The train-step of the second task, as it is meant."""
    return replace(request(world, "er", 1, first, buffered=True), out=tmp_path / "01")


def warnings_of(step: TrainRequest) -> list[str]:
    return list(make_plan(step).warnings)


def test_a_chain_as_it_is_meant_has_no_warning(second: TrainRequest) -> None:
    assert warnings_of(second) == []


def test_a_run_that_starts_from_another_run_and_stream_has_no_warning(
    second: TrainRequest, tmp_path: Path
) -> None:
    other = make_stream(tmp_path / "other", 1, 12, pair=lambda number: make_pair(number + 500))
    buffer = make_buffer(make_task(tmp_path / "held", 8, first=900), tmp_path / "buffer")
    start = replace(second, run="new", tasks=(other / "00-part-0",), buffer=buffer)
    assert warnings_of(start) == []
    assert len(warnings_of(replace(start, run="er"))) == 2, "goes on with the run"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run": "other"}, "run 'er', not 'other'"),
        ({"run": "er", "methods": "seqf"}, "method 'er', not 'seqf'"),
        ({"run": "b", "seed": 1}, "run 'er', not 'b'; seed 0, not 1"),
    ],
)
def test_a_checkpoint_of_another_run_is_told(
    second: TrainRequest, change: dict[str, object], said: str
) -> None:
    from vlcpctl.training.methods import compose

    if "methods" in change:
        change = change | {"methods": compose(str(change["methods"]))}
    (warning,) = warnings_of(replace(second, **change))  # type: ignore[arg-type]
    assert warning == f"--previous is a checkpoint of another run: {said}"


def test_the_warnings_are_printed_and_recorded(
    second: TrainRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    train_step(replace(second, run="other"))
    manifest = read_manifest(second.out, "checkpoint")
    (warning,) = manifest["warnings"]
    assert f"warning: {warning}\n" in capsys.readouterr().err
    assert not read_manifest(second.previous or Path(), "checkpoint")["warnings"]
    from vlcpctl.inspection.lineage import describe, lines

    assert f"  warning: {warning}" in list(lines(describe(second.out)))


def make_buffer(task: Path, out: Path, previous: Path | None = None) -> Path:
    from support.commands import buffer

    buffer(task, out, size="6", previous=previous, quiet=True)
    return out


def test_a_buffer_of_another_stream_is_told(second: TrainRequest, tmp_path: Path) -> None:
    other = make_stream(tmp_path / "other", 1, 12, pair=lambda number: make_pair(number + 500))
    buffer = make_buffer(other / "00-part-0", tmp_path / "foreign")
    assert warnings_of(replace(second, buffer=buffer)) == [
        "--buffer contains pairs of a task of another stream that --previous was not trained on",
        (
            "--buffer was not updated with a task that --previous was trained on (part 0): "
            "its pairs are not replayed"
        ),
    ]


def test_a_buffer_without_a_model_is_told(
    second: TrainRequest, world: TrainingWorld, tmp_path: Path
) -> None:
    buffer = make_buffer(world.tasks[0], tmp_path / "earlier")
    step = replace(second, buffer=buffer, previous=None, from_scratch=True)
    assert warnings_of(step) == [
        "--buffer contains pairs of a task, but there is no --previous",
    ]


def test_what_a_start_may_have_learned_is_not_told(second: TrainRequest, tmp_path: Path) -> None:
    from support.commands import buffer, import_checkpoint

    (task,) = second.tasks
    start, weeks = tmp_path / "start", make_stream(tmp_path / "weeks", 1, 12)
    import_checkpoint(second.previous or Path(), start, quiet=True)
    earlier = make_stream(tmp_path / "earlier", 1, 12, pair=lambda number: make_pair(number + 500))
    first = make_buffer(earlier / "00-part-0", tmp_path / "buffer-0")
    train_step(replace(second, tasks=(weeks / "00-part-0",), previous=start, buffer=first))
    follows = replace(second, previous=second.out, out=tmp_path / "03")
    later = make_buffer(weeks / "00-part-0", tmp_path / "buffer-1", previous=first)
    assert not [one for one in warnings_of(replace(follows, buffer=later)) if "--buffer" in one]
    buffer(task, tmp_path / "buffer-2", size="6", previous=later, quiet=True)
    third = make_stream(tmp_path / "third", 1, 12, pair=lambda number: make_pair(number + 900))
    after = replace(follows, tasks=(third / "00-part-0",), buffer=tmp_path / "buffer-2")
    (warning,) = [one for one in warnings_of(after) if "--buffer" in one]
    assert warning.startswith("--buffer contains pairs of a task")


def test_a_buffer_that_lacks_a_learned_task_is_told(
    second: TrainRequest, world: TrainingWorld, tmp_path: Path
) -> None:
    train_step(second)
    third = replace(
        second,
        tasks=(world.tasks[2],),
        previous=second.out,
        out=tmp_path / "02",
        buffer=make_buffer(world.tasks[1], tmp_path / "late"),
    )
    (warning,) = warnings_of(third)
    assert warning.startswith("--buffer was not updated with a task that --previous was trained on")
    assert "(part 0)" in warning


def test_a_stream_that_was_split_again_is_told(second: TrainRequest, tmp_path: Path) -> None:
    again = make_stream(tmp_path / "again", 3, 12, test=5)
    step = replace(second, tasks=(again / "01-part-1",), buffer=None)
    (halfway,) = [one for one in warnings_of(with_seqf(step)) if "different stream" in one]
    assert "00-part-0 of that stream was not learned" in halfway


def with_seqf(step: TrainRequest) -> TrainRequest:
    from vlcpctl.training.methods import compose

    return replace(step, methods=compose("seqf"))


def test_a_stream_that_grew_is_not_told(second: TrainRequest, tmp_path: Path) -> None:
    grown = make_stream(tmp_path / "grown", 4, 12)
    assert warnings_of(replace(second, tasks=(grown / "01-part-1",))) == []


def _leaky_task(directory: Path) -> Path:
    """Test pairs 0 to 3 are training pairs too: numbers of pairs go round."""
    return make_task(
        directory, splits={"train": 12, "test": 4}, pair=lambda number: make_pair(number % 12)
    )


def test_pairs_that_are_trained_on_and_tested_are_told(
    second: TrainRequest, tmp_path: Path
) -> None:
    step = with_seqf(replace(second, tasks=(_leaky_task(tmp_path / "leaky"),), buffer=None))
    found = [one for one in warnings_of(step) if "split 'test'" in one]
    (warning,) = found
    assert warning.startswith("4 of the training pairs of ")
    assert "the model is evaluated on what it was trained on" in warning


def test_pairs_of_the_buffer_in_a_test_split_of_the_stream_are_told(
    second: TrainRequest, world: TrainingWorld, tmp_path: Path
) -> None:
    # make_stream numbers the pairs of a task from 16 * step: 12 for training, then 4 for testing.
    leaky = make_task(tmp_path / "old", 8, first=12)
    buffer = make_buffer(leaky, tmp_path / "held")
    found = [one for one in warnings_of(replace(second, buffer=buffer)) if "split 'test'" in one]
    assert [one.split(" (")[0].split("pairs of --buffer are also in ")[1] for one in found] == [
        "split 'test' of 00-part-0"
    ]


def test_pairs_of_the_task_in_the_buffer_are_told(second: TrainRequest, tmp_path: Path) -> None:
    same = make_task(tmp_path / "same", 4, first=16)  # the first training pairs of task 1
    buffer = make_buffer(same, tmp_path / "held")
    found = [one for one in warnings_of(replace(second, buffer=buffer)) if "count once" in one]
    assert found == ["4 of the pairs of --buffer are also in 01-part-1; they count once"]


def test_the_plan_begins_with_the_model_and_where_it_comes_from(
    second: TrainRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    def plan(*more: object) -> list[str]:
        words = ("train-step", *second.tasks, "-o", second.out, "--method", "seqf", *more)
        ended = run_program(capfd, *words, "--batch-size", 4, "--dry-run")
        assert ended.code == 0, ended.err
        return ended.err.splitlines()

    alone = plan("--from-scratch")
    assert alone[0] == ("model ViT-B-32 (dual encoder, 224 px, text 30) from preset ctp-dual")
    assert (
        "  note: no --preset is given: ctp-dual has a dual encoder; --preset ctp is the paper's"
        in alone
    )
    paper = plan("--from-scratch", "--preset", "ctp")
    assert paper[0].startswith("model albef-base (fusion model, ")
    other = plan("--from-scratch", "--preset", "tiny", "--model", "micro")[0]
    assert other == "model micro (dual encoder, 16 px, text 12) from --model"
    next_ = plan("--previous", second.previous, "--run", "x")
    assert next_[0].endswith(f") from {second.previous}")
    assert not any("no --preset" in line for line in next_)
