"""The stream step of each task, within one stream and across several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import config_id
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.testing.tiny_stream import make_pair, make_stream
from vlcpctl.training.history import TaskHistory


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    path = make_stream(tmp_path_factory.mktemp("streams") / "stream", 3, 3)
    return [open_task(task) for task in sorted(path.glob("0*"))]


def _parent(stream: str | None, step: int | None, seen: int = 1) -> CheckpointManifest:
    tasks = [f"task {number}" for number in range(seen)]
    return CheckpointManifest(
        identity={},
        run="ctp",
        method="ctp",
        stream=stream,
        stream_step=step,
        step=step,
        task_steps=list(range(seen)),
        tasks=tasks,
        task_names=tasks,
    )


def test_in_one_stream_a_task_has_its_own_step(stream: list[Task]) -> None:
    same = _parent(stream[0].manifest.stream, 0)
    for run in ("ctp", "of another name"):
        history = TaskHistory(stream[1:2], run, same)
        assert history.steps() == [1]
        assert history.body()["task_steps"] == [0, 1]
    assert TaskHistory(stream, "ctp", None).steps() == [0, 1, 2]
    assert TaskHistory(stream, "ctp", None).body()["step"] == 2


@pytest.mark.parametrize("step", [None, 5])
def test_a_model_that_saw_no_task_of_ours_begins_where_the_task_is(
    stream: list[Task], step: int | None
) -> None:
    assert TaskHistory(stream[1:2], "ctp", _parent(None, step, 0)).steps() == [1]


def test_a_run_goes_on_counting_in_another_stream(stream: list[Task]) -> None:
    first = TaskHistory(stream[:1], "ctp", _parent("other", 3, 4))
    assert first.steps() == [4]
    body = first.body()
    assert (body["step"], body["stream_step"], body["task_steps"]) == (4, 0, [0, 1, 2, 3, 4])
    second = TaskHistory(stream[1:2], "ctp", replace(_parent(None, None), **body))
    assert second.steps() == [5]


def test_a_run_that_starts_from_a_model_of_another_begins_with_its_stream(
    stream: list[Task],
) -> None:
    history = TaskHistory(stream[:1], "modx", _parent("elsewhere", 0))
    assert history.steps() == [0]
    assert history.body()["task_steps"] == [None, 0]


def _elsewhere(path: Path, tasks: int) -> list[Task]:
    made = make_stream(path, tasks, 2, pair=lambda number: make_pair(number + 900))
    return [open_task(task) for task in sorted(made.glob("0*"))]


def test_tasks_of_several_streams_at_once_have_the_steps_of_the_first(
    stream: list[Task], tmp_path: Path
) -> None:
    """As the upper bound of Mod-X, on five parts and COCO: two tasks cannot be number 0."""
    aside = _elsewhere(tmp_path / "aside", 2)
    joint = TaskHistory([*stream, *aside], "joint", None)
    assert joint.steps() == [0, 1, 2, None, None]
    body = joint.body()
    assert (body["step"], body["stream_step"]) == (2, 2)
    assert body["stream"] == stream[0].manifest.stream
    weeks = [stream[1], aside[1]]  # each from a stream of its own
    assert TaskHistory(weeks, "joint", None).steps() == [0, 1]
    same = _parent(stream[0].manifest.stream, 0)
    assert TaskHistory(weeks, "ctp", same).steps() == [1, None]


def test_a_run_starts_from_an_imported_model_or_one_of_other_streams(stream: list[Task]) -> None:
    home = stream[0].manifest.stream
    assert TaskHistory(stream[:1], "ctp", None).start() == {}
    imported = replace(_parent(None, None, 0), content="im", origin={"name": "x.pt"})
    assert TaskHistory(stream[:1], "ctp", imported).start() == {"start": "im"}
    later = replace(_parent(home, 0), start="im")
    for run in ("ctp", "a branch"):
        found = TaskHistory(stream[1:2], run, later).start()
        assert found == {"start": "im", "start_config": None}
    other = replace(_parent("elsewhere", 0), content="coco")
    found = TaskHistory(stream[:1], "modx", other).start()
    assert found == {"start": "coco", "start_config": config_id(other)}
    goes_on = TaskHistory(stream[:1], "ctp", other).start()
    assert goes_on == {"start": None, "start_config": None}


def test_a_task_that_was_left_out_is_told(stream: list[Task]) -> None:
    same = _parent(stream[0].manifest.stream, 0)
    said = ["the model was not trained on task 1 of the stream"]
    assert list(TaskHistory(stream[2:], "ctp", same).left_out()) == said


def test_the_start_of_an_average_is_that_of_its_checkpoints(stream: list[Task]) -> None:
    average = replace(_parent("last week", 0), content="av", parents=["a", "b"], start="im")
    for run in ("ctp", "merge-average"):
        found = TaskHistory(stream[:1], run, average).start()
        assert found == {"start": "im", "start_config": None}
