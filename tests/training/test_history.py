"""What a train-step continues from: the steps of tasks, and mistakes that are warned of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import buffer, import_checkpoint

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import config_id
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.lineage import describe, lines
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task
from vlcpctl.training.history import TaskHistory
from vlcpctl.training.methods import compose
from vlcpctl.training.plan import make_plan
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.train_step import train_step


@dataclass
class Place:
    """A stream of which `er` has learned tasks 0 and 1 with buffers, as it is meant."""

    world: TrainingWorld
    root: Path

    def second(self, methods: str = "er", **changes: Any) -> TrainRequest:
        """The second task, after the first one."""
        step = request(self.world, "er", 1, self.root, buffered=True)
        return replace(step, methods=compose(methods), out=self.root / "out", **changes)

    def third(self, **changes: Any) -> TrainRequest:
        return replace(request(self.world, "er", 2, self.root, buffered=True), **changes)

    def stream(
        self, name: str, first: int = 0, *, tasks: int = 1, number: int = 0, test: int = 4
    ) -> Path:
        """A task of a stream whose pairs are numbered from `first`."""
        path = self.root / name
        if not path.exists():
            make_stream(path, tasks, 12, test=test, pair=lambda pair: make_pair(pair + first))
        return path / f"{number:02d}-part-{number}"

    def held(self, task: Path, previous: Path | None = None) -> Path:
        """A buffer of a task."""
        path = self.root / f"held-{task.parent.name}-{task.name}-{previous and previous.name}"
        if not path.exists():
            buffer(task, path, size="6", previous=previous, quiet=True)
        return path

    def task(self, name: str, count: int, first: int) -> Path:
        path = self.root / name
        return path if path.exists() else make_task(path, count, first=first)

    def leaky(self) -> Path:
        """Test pairs 0 to 3 are training pairs too: numbers of pairs go round."""
        splits = {"train": 12, "test": 4}
        return make_task(self.root / "leaky", splits=splits, pair=lambda one: make_pair(one % 12))

    def after_start(self, name: str) -> TrainRequest:
        """A step after one from a model whose buffer had pairs of another stream.

        "imported" is not known to have learned any task, "00" has learned one.
        """
        if not (self.root / "imported").exists():
            import_checkpoint(self.root / "00", self.root / "imported", quiet=True)
        one, two = (self.stream("weeks", 300, tasks=2, number=number) for number in range(2))
        run, out, before = (
            f"from {name}",
            self.root / f"after {name}",
            self.held(self.stream("earlier", 500)),
        )
        first = self.second(run=run, tasks=(one,), previous=self.root / name, buffer=before)
        train_step(replace(first, out=out))
        held = self.held(one, before)
        return self.second(run=run, tasks=(two,), previous=out, buffer=held)


@pytest.fixture(scope="module")
def place(world: TrainingWorld, tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("lineage")
    for number in range(2):
        train_step(request(world, "er", number, root, buffered=True))
    return Place(world, root)


OTHER_RUN = "--previous is a checkpoint of another run: "
OTHER_METHOD = f"{OTHER_RUN}method 'er', not 'seqf'"
TWICE = "4 of the pairs of --buffer are also in 01-part-1; they count once"
FOREIGN = "--buffer contains pairs of a task of another stream that --previous was not trained on"
STALE = (
    "--buffer was not updated with a task that --previous was trained on (part 0): "
    "its pairs are not replayed"
)
CASES: dict[str, tuple[Callable[[Place], TrainRequest], tuple[str, ...]]] = {
    "as it is meant": (lambda at: at.second(), ()),
    "a start from another run and stream": (
        lambda at: at.second(
            run="new", tasks=(at.stream("other", 500),), buffer=at.held(at.task("apart", 8, 900))
        ),
        (),
    ),
    "the run in another stream": (
        lambda at: at.second(
            tasks=(at.stream("other", 500),), buffer=at.held(at.task("apart", 8, 900))
        ),
        (FOREIGN, STALE),
    ),
    "another run": (lambda at: at.second(run="other"), (f"{OTHER_RUN}run 'er', not 'other'",)),
    "another method": (lambda at: at.second("seqf"), (OTHER_METHOD,)),
    "another seed": (
        lambda at: at.second(run="b", seed=1),
        (f"{OTHER_RUN}run 'er', not 'b'; seed 0, not 1",),
    ),
    "a buffer of another stream": (
        lambda at: at.second(buffer=at.held(at.stream("other", 500))),
        (FOREIGN, STALE),
    ),
    "a buffer without a model": (
        lambda at: at.second(buffer=at.held(at.world.tasks[0]), previous=None, from_scratch=True),
        ("--buffer contains pairs of a task, but there is no --previous",),
    ),
    "a buffer that lacks a task": (
        lambda at: at.third(buffer=at.held(at.world.tasks[1])),
        (STALE,),
    ),
    "a stream that was split again": (
        lambda at: at.second(
            "seqf", buffer=None, tasks=(at.stream("again", tasks=3, number=1, test=5),)
        ),
        (OTHER_METHOD, "00-part-0 of that stream was not learned"),
    ),
    "a stream that grew": (
        lambda at: at.second(tasks=(at.stream("grown", tasks=4, number=1),)),
        (),
    ),
    "trained on and tested": (
        lambda at: at.second("seqf", tasks=(at.leaky(),), buffer=None),
        ("4 of the training pairs of leaky are also in split 'test' of leaky", OTHER_METHOD),
    ),
    # make_stream numbers the pairs of a task from 16 * step: 12 for training, then 4 for testing.
    "replayed and tested": (
        lambda at: at.second(buffer=at.held(at.task("old", 8, 12))),
        ("2 of the pairs of --buffer are also in split 'test' of 00-part-0", TWICE, FOREIGN, STALE),
    ),
    "replayed and trained on": (
        lambda at: at.second(buffer=at.held(at.task("same", 4, 16))),
        (TWICE, FOREIGN, STALE),
    ),
    "what a start may have learned": (lambda at: at.after_start("imported"), ()),
    "what a start has learned": (lambda at: at.after_start("00"), ()),
    "a buffer of two streams": (
        lambda at: replace(
            at.after_start("imported"),
            tasks=(at.stream("third", 900),),
            buffer=at.held(at.world.tasks[1], at.held(at.stream("weeks", 300, tasks=2))),
        ),
        (FOREIGN,),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_warns_of_what_may_not_be_meant(place: Place, case: str) -> None:
    made, wanted = CASES[case]
    found = make_plan(made(place)).warnings
    assert len(found) == len(wanted), found
    assert all(part in one for one, part in zip(found, wanted, strict=True)), found


def test_the_warnings_are_printed_and_recorded(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = replace(place.second(run="other"), out=tmp_path / "01")
    train_step(step)
    (warning,) = read_manifest(step.out, "checkpoint")["warnings"]
    assert f"warning: {warning}\n" in capsys.readouterr().err
    assert not read_manifest(place.root / "00", "checkpoint")["warnings"]
    assert f"  warning: {warning}" in list(lines(describe(step.out)))


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
