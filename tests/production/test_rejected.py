"""Rejected weeks are kept without their weights, said to be in no week, and searched."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import FAILS, PASSES, bodies, killed_at, week_words, write_week
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.layout import Layout
from vlcpctl.production.rejected import said_of_rejected
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]

KEPT = ["ranks", "report", "rows", "seconds.json", "stream", "verdict.json", "week.json"]


@pytest.fixture
def rejected(run: Run, place: Path, state: Path) -> Path:
    """A state whose second week is rejected."""
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    assert (state / "pending/checkpoint").exists()
    return state


def names(directory: Path) -> list[str]:
    return sorted(one.name for one in directory.iterdir())


def test_a_rejected_week_is_kept_until_its_data_are_accepted(
    run: Run, place: Path, rejected: Path
) -> None:
    said = f"({place.name}/week-2.parquet, 24 pairs) was rejected and is in no later week"
    # Other gates judge the same week; another setting is another week of the same data.
    again = run(*week_words(place, rejected, 2), *FAILS, "-q")
    other = run(*week_words(place, rejected, 2), *FAILS, "--steps", "2", "-q")
    assert (again.code, other.code) == (7, 7)
    assert said not in again.err + other.err
    assert names(rejected / "rejected") == ["0002-1"]
    done = run(*week_words(place, rejected, 3), *PASSES)
    assert done.code == 0
    assert f"{rejected}/pending, the rejected week 2, is kept without weights in" in done.err
    (line,) = [one for one in done.err.splitlines() if said in one]
    assert line.startswith("warning: week 2 of ")
    assert names(rejected / "rejected") == ["0002-1", "0002-2"]
    for week in (rejected / "rejected").iterdir():
        assert names(week) == KEPT
    task = open_task(rejected / "rejected/0002-2/stream/00-week-0002")
    assert sum(one.images for one in task.manifest.splits.values()) == 24
    shown = run("inspect", rejected).out
    dated = r"rejected: 0002-1 of [0-9-]{10}, 0002-2 of [0-9-]{10} "
    assert re.search(f"{dated}{re.escape(f'({rejected}/rejected)')}", shown)
    write_week(place / "week-4.parquet", 4)
    assert run(*week_words(place, rejected, 4), *PASSES, "--keep", "1", "-q").code == 0
    for week in (rejected / "rejected").iterdir():  # old, but no accepted week has its pairs
        assert names(week) == KEPT
    done = run(*week_words(place, rejected, 2), "-q")
    assert (done.code, said in done.err) == (0, False)
    for week in (rejected / "rejected").iterdir():  # an accepted week has its pairs now
        assert names(week) == [one for one in KEPT if one != "stream"]
    refused = run("update", "--state", rejected, "--redo", "rejected/0002-1")
    check_refused(refused, "update", 2, "--redo rejected/0002-1: --keep has removed its pairs")
    assert run("check", rejected).code == 0
    assert [one["action"] for one in bodies(rejected)][2:] == [
        *("started", "rejected", "started", "rejected", "started", "accepted"),
        *("started", "accepted", "started", "accepted"),
    ]


@pytest.mark.slow
def test_pairs_of_a_rejected_week_can_be_forgotten(run: Run, place: Path, rejected: Path) -> None:
    assert run(*week_words(place, rejected, 3), *PASSES, "-q").code == 0
    task = rejected / "rejected/0002-1/stream/00-week-0002"
    keys = [key for name in ("train", "test") for key in open_task(task).split(name).keys]
    layout = Layout(rejected)
    for some in (keys[:2], keys):
        assert said_of_rejected(layout, read_state(layout), "") is not None
        listed = rejected.parent / "keys"
        listed.write_text("\n".join(some))
        assert run("forget", "--keys", listed, rejected, "-q", "--missing-ok").code == 0
    assert not any(
        len(open_task(task).split(name).keys) for name in open_task(task).manifest.splits
    )
    assert said_of_rejected(layout, read_state(layout), "") is None
    assert "no week is made" in run(*week_words(place, rejected, 2), "--dry-run").out


def test_a_rollback_keeps_the_rejected_week(run: Run, place: Path, rejected: Path) -> None:
    words = ["update", "--state", rejected, "--rollback", "0"]
    kept = f"the rejected week 2, is kept without weights in {rejected}/rejected/0002-1"
    assert kept in run(*words, "--dry-run").out
    done = run(*words)
    assert (done.code, kept in done.err) == (0, True)
    assert names(rejected / "rejected/0002-1") == KEPT
    assert not (rejected / "pending").exists()


@pytest.mark.parametrize("at", ["set aside", pytest.param("started", marks=pytest.mark.slow)])
def test_a_move_that_was_killed_is_completed(
    run: Run, place: Path, rejected: Path, tmp_path: Path, at: str
) -> None:
    words = [*week_words(place, rejected, 3), *PASSES, "-q"]
    assert killed_at(at, words, tmp_path / "log") == -signal.SIGKILL
    assert ("checkpoint" in names(rejected / "rejected/0002-1")) == (at == "set aside")
    done = run(*words)
    assert (done.code, "was rejected and is in no later week" in done.err) == (0, True)
    assert names(rejected / "rejected") == ["0002-1"]
    assert names(rejected / "rejected/0002-1") == KEPT
    new = [one["action"] for one in bodies(rejected)][2:]
    assert new == ["started", "rejected", "started", "accepted"]
