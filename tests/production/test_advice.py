"""What an error of `update` advises, followed: each piece of advice leads past the error."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.processes import exit_code_of, start_child
from support.production import PASSES, first_words, week_words
from support.program import ProgramResult

from vlcpctl.production.layout import Layout
from vlcpctl.testing.tiny_stream import make_task

Run = Callable[..., ProgramResult]
Words = Sequence[object]

_SPLITS = {"train": 4, "test": 4}


@dataclass(frozen=True)
class World:
    """What the lines of the table are made of."""

    run: Run
    place: Path
    state: Path
    new: Path  # a directory that is not there

    def first(self, *without: str) -> list[object]:
        """The first week of a new state, without some options, as a dry run."""
        words = [*first_words(self.place, self.new), "--dry-run"]
        for name in without:
            at = words.index(name)
            del words[at : at + 2]
        return words

    def week(self, *more: object) -> list[object]:
        """The second week, as a dry run."""
        return [*week_words(self.place, self.state, 2), "--dry-run", *more]

    def guard(self, name: str, first: int = 0, splits: Mapping[str, int] = _SPLITS) -> Path:
        """A task of the name 00-tiny."""
        make_task(self.new / name / "00-tiny", splits=dict(splits), first=first)
        return self.new / name / "00-tiny"


def _with_a_column_of_splits(world: World) -> tuple[Words, Words]:
    pairs = pq.read_table(world.place / "week-2.parquet")
    part = pa.array(["test" if place % 4 == 0 else "train" for place in range(len(pairs))])
    file = world.place / "in-parts.parquet"
    pq.write_table(pairs.append_column("part", part), file)
    words = ["update", file, "--state", world.state, "--dry-run", "--split-column", "part"]
    return [*words, "--holdout", "test=0.1"], words


def _moved_guard(world: World) -> tuple[Words, Words]:
    guard = world.guard("here")
    # Its guard is not where it was, seen from the copy.
    shutil.copytree(world.state, world.new / "prod", symlinks=True)
    words = [*week_words(world.place, world.new / "prod", 2), "--dry-run"]
    return words, [*words, "--guard", guard, "--small-guard"]


def _twice_named(world: World) -> tuple[Words, Words]:
    guards = ["--guard", world.guard("one"), "--guard", world.guard("two", 50)]
    source = [world.place / "earlier.parquet", "--holdout", "test=0.4", "-q"]
    out = world.new / "again"
    assert world.run("split", *source, "-o", out, "--by", "all:other").code == 0
    return world.week(*guards), world.week(*guards[:3], out / "00-other", "--small-guard")


def _another_start(world: World) -> tuple[Words, Words]:
    return world.week("--init", world.place / "trained"), world.week()


def _trained_start(world: World) -> tuple[Words, Words]:
    words = world.first()
    words[words.index("--init") + 1] = world.place / "trained"
    return [*words, "--run", "seqf"], [*words, "--run", "other"]


# By the advice: what is asked for first, and what follows the advice.
TABLE: dict[str, Callable[[World], tuple[Words, Words]]] = {
    "--init CHECKPOINT starts one": lambda w: (
        [*week_words(w.place, w.new, 1), "--dry-run"],
        w.first(),
    ),
    "contains the input": lambda w: (
        [*week_words(w.place, w.place, 1), "--init", w.place / "model", "--dry-run"],
        w.first(),
    ),
    "is not a state directory; choose another --state": lambda w: (
        [*week_words(w.place, w.place / "golden", 1), "--init", w.place / "model", "--dry-run"],
        w.first(),
    ),
    "add --buffer-from DATA": lambda w: (
        [*w.first("--buffer-from"), "--method", "er"],
        [*w.first(), "--method", "er"],
    ),
    "or use a method that needs none, such as ctp": lambda w: (
        [*w.first("--buffer-from"), "--method", "er"],
        [*w.first("--buffer-from"), "--method", "ctp"],
    ),
    "--guard gives its new place": _moved_guard,
    "split them again with --by all:NAME": _twice_named,
    "give a task outside the state directory": lambda w: (
        w.week("--guard", w.state / "weeks/0001/stream/00-week-0001"),
        w.week("--guard", w.place / "silver/00-silver", "--small-guard"),
    ),
    "has no test split; give a task that has one": lambda w: (
        w.week("--guard", w.guard("trained", splits={"train": 4})),
        w.week("--guard", w.place / "silver/00-silver", "--small-guard"),
    ),
    "for a method without it, use ctp": lambda w: (
        w.week("--method", "zscl"),
        w.week("--method", "ctp"),
    ),
    "needs --reference: a task with pairs": lambda w: (
        w.week("--method", "gift"),
        w.week("--method", "gift", "--reference", w.place / "silver/00-silver"),
    ),
    "or give --reference none if it is that of an earlier week": lambda w: (
        w.week("--reference", w.place / "silver/00-silver"),
        w.week("--reference", "none"),
    ),
    "can be trimmed, and taken back; give a task outside": lambda w: (
        w.week("--method", "snd", "--reference", w.state / "weeks/0001/stream/00-week-0001"),
        w.week("--method", "snd", "--reference", w.place / "silver/00-silver"),
    ),
    "leave these options out": _another_start,
    "is the run of --init; choose another name": _trained_start,
    "names it only with --init; leave it out": lambda w: (w.week("--run", "other"), w.week()),
    "cannot change; keep it": lambda w: (w.week("--seed", "1"), w.week("--seed", "0")),
    "give shares that sum to less than 1": lambda w: (
        w.week("--holdout", "test=1.0"),
        w.week("--holdout", "test=0.9"),
    ),
    "leave out --holdout and --holdout-most": _with_a_column_of_splits,
    "(known: error, pass)": lambda w: (
        w.week("--undefined", "maybe"),
        w.week("--undefined", "pass"),
    ),
    "such as 20000 or 5%": lambda w: (
        w.week("--buffer-size", "many"),
        w.week("--buffer-size", "20000"),
    ),
    "did you mean 'worst_drop'": lambda w: (
        w.week("--fail-if", "worst_dorp:gt:2"),
        w.week("--fail-if", "worst_drop:gt:2"),
    ),
    "update with it in a second command": lambda w: (
        [*w.week(), "--rollback", "0"],
        ["update", "--state", w.state, "--rollback", "0", "--dry-run"],
    ),
    "see 'vlcpctl update --help'": lambda w: (
        ["update", "--state", w.state],
        ["update", "--help"],
    ),
}


@pytest.mark.parametrize("advice", TABLE)
def test_advice_that_is_followed_helps(
    run: Run, place: Path, state: Path, tmp_path: Path, advice: str
) -> None:
    world = World(run, place, state, tmp_path / "a" / "new")
    mistaken, followed = TABLE[advice](world)
    refused = run(*mistaken)
    assert advice in refused.err.splitlines()[-1]
    assert refused.code in {2, 3, 4}
    done = run(*followed)
    assert done.code == 0, done.err


@pytest.mark.slow
def test_the_advice_of_a_condition_that_is_undefined_helps(
    run: Run, place: Path, state: Path
) -> None:
    assert run("update", "--state", state, "--rollback", "0").code == 0
    words = [*week_words(place, state, 2), "-q"]
    undefined = ["--fail-if", "bwt_gem:lt:-200"]  # nothing can be forgotten in a first week
    said = "run the same command with other conditions or with --undefined pass"
    refused = run(*words, *undefined)
    assert refused.code == 3
    assert said in refused.err.splitlines()[-1]
    assert "not defined yet (1 task)" in refused.err
    assert not list((state / "weeks").iterdir())
    for followed in (PASSES, [*undefined, "--undefined", "pass"]):
        kept = _copied(state)
        assert run(*words, *followed).code == 0
        _put_back(kept, state)


def test_the_advice_of_a_week_without_test_images_helps(run: Run, place: Path, state: Path) -> None:
    words = [*week_words(place, state, 2), *PASSES, "-q"]
    refused = run(*words, "--holdout", "test=0.001")
    assert refused.code == 3
    assert "no image of this week is in split test" in refused.err.splitlines()[-1]
    assert "--holdout test=N holds out N images" in refused.err.splitlines()[-1]
    assert run(*words, "--holdout", "test=2").code == 0


@pytest.mark.slow
def test_the_advice_of_an_unfinished_week_of_another_command_helps(
    run: Run, place: Path, state: Path
) -> None:
    words, other = ([*week_words(place, state, number), "-q"] for number in (2, 3))
    assert run(*words, "--fail-if", "drop@data=nowhere:gt:2").code == 3
    refused = run(*other, *PASSES)
    assert refused.code == 4
    assert (
        f"its data was {place.name}/week-2.parquet and is now {place.name}/week-3.parquet"
        in refused.err
    )
    assert "finish it with that command, or --force starts over" in refused.err
    kept = _copied(state)
    assert run(*other, *PASSES, "--force").code == 0
    _put_back(kept, state)
    assert run(*words, *PASSES).code == 0


def _copied(state: Path) -> Path:
    return shutil.copytree(state, state.with_name("kept"), symlinks=True)


def _put_back(kept: Path, state: Path) -> None:
    shutil.rmtree(state)
    kept.rename(state)


def test_the_advice_of_a_held_lock_helps(run: Run, place: Path, state: Path) -> None:
    reader, writer = os.pipe()

    def hold(_: object) -> None:
        with Layout(state).locked():
            os.write(writer, b".")
            signal.pause()

    child = start_child(hold)
    os.close(writer)
    assert os.read(reader, 1)
    refused = run(*week_words(place, state, 1))
    assert "wait for it, or use --wait" in refused.err
    ender = start_child(lambda _: os.kill(child, signal.SIGKILL))
    done = run(*week_words(place, state, 1), "--wait", "60")
    assert done.code == 0
    assert exit_code_of(ender) == 0
    assert exit_code_of(child) == -signal.SIGKILL
