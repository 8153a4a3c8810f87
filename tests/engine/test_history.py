"""At which step a model learns a task, in one stream and over several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny_stream import make_stream

from vlcpctl.core.errors import UsageError
from vlcpctl.data.task import Task, open_task
from vlcpctl.engine.history import notes, steps_of
from vlcpctl.engine.plan import _refuse_repeated


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    path = make_stream(tmp_path_factory.mktemp("streams") / "stream", 3, 3)
    return [open_task(task) for task in sorted(path.glob("0*"))]


def _parent(stream: str | None, step: int | None, seen: int = 1) -> dict[str, Any]:
    return {"stream": stream, "step": step, "tasks": [f"task {number}" for number in range(seen)]}


def test_in_one_stream_a_task_has_its_own_step(stream: list[Task]) -> None:
    same = _parent(stream[0].manifest["stream"], 0)
    assert steps_of(stream[1:2], same) == [1]
    assert steps_of(stream, None) == [0, 1, 2]
    assert list(notes(stream[1:2], same)) == []


def test_a_model_that_saw_no_task_of_ours_begins_where_the_task_is(stream: list[Task]) -> None:
    for step in (None, 5):
        assert steps_of(stream[1:2], _parent(None, step, 0)) == [1]


def test_tasks_of_another_stream_come_behind(stream: list[Task]) -> None:
    other = _parent("other", 3, 4)
    assert steps_of(stream[:2], other) == [4, 5]
    assert list(notes(stream[:1], other)) == [
        "of another stream than the tasks before: it counts as step 4"
    ]
    grown = _parent("before it grew", 0)
    assert steps_of(stream[1:2], grown) == [1]
    assert list(notes(stream[1:2], grown)) == []


def test_a_task_that_was_left_out_is_told(stream: list[Task]) -> None:
    same = _parent(stream[0].manifest["stream"], 0)
    assert list(notes(stream[2:], same)) == ["the model has not learned task 1 of the stream"]


def test_a_buffer_with_pairs_of_the_task_itself_is_refused(
    stream: list[Task], tmp_path: Path
) -> None:
    from vlcpctl.commands.buffer import run as buffer

    buffer(stream[0].path, tmp_path / "held", size="2", quiet=True)
    held = open_task(tmp_path / "held")
    _refuse_repeated((stream[1],), held)
    with pytest.raises(UsageError, match=r"holds pairs of .*00-part-0, which is trained on now"):
        _refuse_repeated((stream[1], stream[0]), held)
