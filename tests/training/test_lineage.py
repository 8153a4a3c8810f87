"""What a train-step continues from: mistakes are warned of and recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import buffer, import_checkpoint
from support.program import run_program

from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.lineage import describe, lines
from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task
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


def test_the_plan_begins_with_the_model_and_where_it_comes_from(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    def plan(*more: object) -> list[str]:
        step = place.second()
        words = ("train-step", *step.tasks, "-o", step.out, "--method", "seqf", *more)
        ended = run_program(capfd, *words, "--batch-size", 4, "--dry-run")
        assert ended.code == 0, ended.err
        return ended.err.splitlines()

    alone = plan("--from-scratch")
    assert alone[0] == "model ViT-B-32 (dual encoder, 224 px, text 30) from preset ctp-dual"
    assert any("note: no --preset is given: ctp-dual has a dual encoder" in one for one in alone)
    paper = plan("--from-scratch", "--preset", "ctp")
    assert paper[0].startswith("model albef-base (fusion model, ")
    other = plan("--from-scratch", "--preset", "tiny", "--model", "micro")[0]
    assert other == "model micro (dual encoder, 16 px, text 12) from --model"
    next_ = plan("--previous", place.root / "00", "--run", "x")
    assert next_[0].endswith(f") from {place.root / '00'}")
    assert not any("no --preset" in line for line in next_)
