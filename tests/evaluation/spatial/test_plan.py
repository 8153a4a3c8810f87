"""Which checkpoints are compared: those of a run by step, or two in the order given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_checkpoint_manifest

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.evaluation.spatial import Spatial
from vlcpctl.files.manifest import is_artifact
from vlcpctl.files.outputs import new_directory
from vlcpctl.files.rows import run_label
from vlcpctl.testing.tiny_stream import make_stream, make_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    stream = make_stream(tmp_path_factory.mktemp("spatial") / "stream", 2, 4)
    return open_stream(stream)[0]


def checkpoint(root: Path, run: str, step: int | None, **body: Any) -> Path:
    """A directory with the manifest of a checkpoint, whose id is RUN/STEP."""
    path = root / run / str(step)
    with new_directory(path, is_artifact) as directory:
        write_checkpoint_manifest(directory, f"{run}/{step}", run=run, step=step, **body)
    return path


def turns(task: Task, paths: list[Path], between: str = "neighbours") -> list[str]:
    evaluator = Spatial(
        tasks=(task,), checkpoints=tuple(paths), between=between, split="test", limit=None
    )
    rows = [row.fields for session in evaluator.plan() for row in session.rows]
    return [f"{step_of(row['since'])} -> {step_of(row)}" for row in rows]


def step_of(about: dict[str, Any]) -> str:
    return f"{run_label(about['run'], about.get('alpha'))} step {about['step']}"


def test_neighbours_are_compared_and_the_first_with_the_last(tmp_path: Path, task: Task) -> None:
    paths = [checkpoint(tmp_path, "r", step) for step in (2, 0, 1)]
    assert turns(task, paths) == [
        "r step 0 -> r step 1",
        "r step 0 -> r step 2",
        "r step 1 -> r step 2",
    ]
    four = [*paths, checkpoint(tmp_path, "r", 5)]
    assert turns(task, four) == [
        "r step 0 -> r step 1",
        "r step 1 -> r step 2",
        "r step 0 -> r step 5",
        "r step 2 -> r step 5",
    ]
    assert len(turns(task, four, "all")) == 6


def test_two_of_a_run_are_compared_by_step_and_two_runs_as_given(
    tmp_path: Path, task: Task
) -> None:
    early, late = checkpoint(tmp_path, "r", 0), checkpoint(tmp_path, "r", 3)
    other = checkpoint(tmp_path, "s", 0)
    assert turns(task, [late, early]) == ["r step 0 -> r step 3"]
    assert turns(task, [late, other]) == ["r step 3 -> s step 0"]


def test_runs_and_seeds_are_chains_of_their_own(tmp_path: Path, task: Task) -> None:
    paths = [checkpoint(tmp_path, run, step) for run in "ab" for step in (0, 1)]
    paths += [checkpoint(tmp_path / "1", "a", step, seed=1) for step in (0, 1)]
    assert turns(task, paths) == [
        "a step 0 -> a step 1",
        "b step 0 -> b step 1",
        "a step 0 -> a step 1",
    ]


def test_a_model_that_runs_begin_with_belongs_to_each_of_them(tmp_path: Path, task: Task) -> None:
    start = checkpoint(tmp_path, "openai", None)
    paths = [checkpoint(tmp_path, run, 0, parent="openai/None") for run in "ab"]
    assert turns(task, [*paths, start]) == [
        "openai step None -> a step 0",
        "openai step None -> b step 0",
    ]


def test_a_row_says_since_which_checkpoint(tmp_path: Path, task: Task) -> None:
    evaluator = Spatial(
        tasks=(task,),
        checkpoints=(checkpoint(tmp_path, "r", 0), checkpoint(tmp_path, "r", 1)),
        between="all",
        split="test",
        limit=3,
    )
    ((row,),) = (session.rows for session in evaluator.plan())
    assert row.fields["since"] == {"run": "r", "step": 0, "checkpoint": "r/0"}
    assert (row.fields["step"], row.fields["limit"]) == (1, 3)


def test_each_share_of_averages_is_a_run_of_its_own(tmp_path: Path, task: Task) -> None:
    def average(alpha: float, step: int) -> Path:
        return checkpoint(tmp_path / f"{alpha}", "mix", step, alpha=alpha)

    zero, quarter, one = (average(alpha, 1) for alpha in (0, 0.25, 1))
    assert turns(task, [zero, one]) == ["mix alpha=0 step 1 -> mix alpha=1 step 1"]
    with pytest.raises(UsageError, match=r"only checkpoint of run 'mix alpha=0'"):
        turns(task, [zero, quarter, one])
    steps = [zero, quarter, average(0.25, 2), average(0, 2)]
    assert turns(task, steps) == [
        "mix alpha=0 step 1 -> mix alpha=0 step 2",
        "mix alpha=0.25 step 1 -> mix alpha=0.25 step 2",
    ]


def test_what_cannot_be_compared_is_refused(tmp_path: Path, task: Task) -> None:
    one, two = checkpoint(tmp_path, "a", 0), checkpoint(tmp_path, "a", 1)
    with pytest.raises(UsageError, match="give at least two checkpoints"):
        turns(task, [one])
    with pytest.raises(UsageError, match="b/0 is the only checkpoint of run 'b' here"):
        turns(task, [one, two, checkpoint(tmp_path, "b", 0)])
    bare = open_task(make_task(tmp_path / "bare", 3))
    with pytest.raises(BadInput, match=r"split 'test' \(it has: train\)"):
        turns(bare, [one, two])
