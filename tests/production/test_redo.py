"""`update --redo`: weeks again from the pairs in the state, which replace the others at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import FAILS, PASSES, bodies, killed_at, tree, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.layout import Layout
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]
WEIGHTS = "checkpoint/open_clip_model.safetensors"
_SWAP = (
    *("moved", "accepted", "linked", "recorded the swap", "recorded", "pointed aside"),
    *("without 1", "moved 1", "pointed", "without redo"),
)


def redo_words(state: Path, week: object, *more: object) -> list[object]:
    return ["update", "--state", state, "--redo", week, *more, "-q"]


def test_an_accepted_week_is_replaced_by_the_same_one(run: Run, state: Path) -> None:
    before = tree(state)
    hook = ["--on-accept", f"echo $VLCPCTL_CHECKPOINT >{state.parent}/hook"]
    again = run(*redo_words(state, 1, "--reason", "a test", *hook))
    (state.parent / "hook").rename(state.parent / "ran")
    assert (state.parent / "ran").read_text() == f"{state}/weeks/0001/checkpoint\n"
    assert (again.code, again.out) == (0, f"{state}/weeks/0001/checkpoint\n")
    after = tree(state)
    old = {name: one for name, one in before.items() if name.startswith("weeks/0001/")}
    assert {name: after[name.replace("weeks", "rolled-back", 1)] for name in old} == old
    assert after[f"weeks/0001/{WEIGHTS}"] == before[f"weeks/0001/{WEIGHTS}"]
    assert (
        after["weeks/0001/stream/00-week-0001/train-000000.tar"]
        == (before["weeks/0001/stream/00-week-0001/train-000000.tar"])
    )
    assert after["current"] == Path("weeks/0001/checkpoint")
    assert not (state / "redo").exists()
    assert "redone" not in json.loads((state / "state.json").read_text())
    begun, last, hooked = bodies(state)[-3:]
    assert (begun["action"], begun["week"]) == ("redo started", 1)
    assert (last["action"], last["week"], last["reason"]) == ("redone", 1, "a test")
    assert (hooked["hook"], hooked["exit_code"]) == ("accept", 0)
    assert run("check", state / "weeks/0001/stream").code == 0


@pytest.mark.parametrize("option", ["--redo", "--index-week", "--keep"])
def test_a_number_of_thousands_of_digits_is_no_week(
    run: Run, place: Path, state: Path, option: str
) -> None:
    words = redo_words(state, "1" * 5000)
    if option != "--redo":
        words = [*week_words(place, state, 2), option, "1" * 5000]
    check_refused(run(*words), "update", 2, option)


def test_today_s_settings_count_and_another_one_is_kept_beside(run: Run, state: Path) -> None:
    done = run(*redo_words(state, 1, "--steps", "2", "--json"))
    (found,) = json.loads(done.out)
    assert (found["week"], found["accepted"]) == (1, True)
    assert found["checkpoint"] == f"{state}/weeks/0001/checkpoint"
    place = Layout(state)
    assert read_state(place).settings.steps == 2
    last = bodies(state)[-1]
    assert last["settings"]["steps"] == {"was": 3, "is": 2}
    assert run("update", "--state", state, "--rollback", "0").code == 0
    assert [one.name for one in place.rolled_back()] == ["0001", "0001-2"]
    done = run(*redo_words(state, 1, "--dry-run"))
    assert done.out.startswith(f"# week 1 again, from {state}/rolled-back/0001-2\n")
    other = run(*redo_words(state, "rolled-back/0001", "--dry-run"))
    assert (
        f"split {state}/rolled-back/0001/stream/00-week-0001 -o {state}/redo/pending" in other.out
    )


@pytest.mark.slow
def test_the_weeks_after_it_are_made_again_or_nothing_is(
    run: Run, place: Path, state: Path
) -> None:
    for number in (2, 3):
        assert run(*week_words(place, state, number), "-q").code == 0
    before = tree(state)
    done = run(*redo_words(state, 2, "--lr", "0.5", *FAILS))
    assert done.code == 7
    assert "week 2 is rejected when it is made again" in done.err
    assert f"nothing in {state} is replaced; see {state}/redo/pending/report/week.html" in done.err
    after = tree(state)
    aside = {name for name in after if name.startswith("redo/")}
    ledger = after.pop("history.ndjson")
    assert ledger[-1]["action"] == "rejected in a redo"  # type: ignore[index]
    assert {name: after[name] for name in after.keys() - aside} == {
        name: one for name, one in before.items() if name != "history.ndjson"
    }
    # Other gates judge it again, without another training; then week 3 follows.
    made = (state / "redo/pending" / WEIGHTS).stat().st_ino
    done = run(*redo_words(state, 2, "--lr", "0.5", *PASSES))
    assert (done.code, done.out) == (0, f"{state}/weeks/0003/checkpoint\n")
    assert (state / "weeks/0002" / WEIGHTS).stat().st_ino == made
    assert [one["action"] for one in bodies(state)][-2:] == ["redone", "redone"]
    assert [week.number for week in read_state(Layout(state)).weeks] == [1, 2, 3]
    manifest = json.loads((state / "weeks/0003/checkpoint/checkpoint.json").read_text())
    assert manifest["identity"]["settings"]["lr"] == 0.5


@pytest.mark.slow
def test_a_rejected_week_becomes_the_next_one(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    done = run(*week_words(place, state, 3), *PASSES, "-q")
    assert "--redo rejected/0002-1 trains it again" in done.err
    done = run(*redo_words(state, "rejected/0002-1"))
    assert (done.code, done.out) == (0, f"{state}/weeks/0003/checkpoint\n")
    task = open_task(state / "weeks/0003/stream/00-week-0003")
    rejected = open_task(state / "rejected/0002-1/stream/00-week-0002")
    assert (task.name, task.counts) == ("week-0003", rejected.counts)
    assert task.split("train").keys == rejected.split("train").keys
    # The same file is known now.
    assert "already accepted as week 3" in run(*week_words(place, state, 2)).err
    done = run(*redo_words(state, "rejected/0002-1"))
    check_refused(done, "update", 2, "are in accepted weeks already, or were deleted")


def test_the_pending_week_is_meant_by_its_number(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    done = run(*redo_words(state, 2, *PASSES))
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n")
    assert [one.name for one in Layout(state).rejected()] == ["0002-1"]


@pytest.mark.slow
def test_of_several_rejected_weeks_of_a_number_the_latest_is_meant(
    run: Run, place: Path, state: Path
) -> None:
    for number in (2, 3):
        assert run(*week_words(place, state, number), *FAILS, "-q").code == 7
    assert (state / "rejected/0002-1").is_dir()
    done = run(*redo_words(state, 2, *PASSES))
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n"), done.err
    redone = open_task(state / "weeks/0002/stream/00-week-0002").split("train").keys
    latest = open_task(state / "rejected/0002-2/stream/00-week-0002").split("train").keys
    assert redone == latest


@pytest.mark.slow
def test_a_number_of_several_weeks_is_refused_before_anything_moves(
    run: Run, place: Path, state: Path
) -> None:
    assert run(*week_words(place, state, 2), *PASSES, "-q").code == 0
    assert run("update", "--state", state, "--rollback", 1, "-q").code == 0
    assert run(*week_words(place, state, 3), *FAILS, "-q").code == 7
    before = tree(state)
    for more in ((), ("--dry-run",)):
        done = run(*redo_words(state, 2, *PASSES, *more))
        check_refused(done, "update", 2, "--redo 2 may be rolled-back/0002, pending: give one")
        assert tree(state) == before
    done = run(*redo_words(state, "pending", *PASSES))
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n"), done.err


def test_what_it_cannot_make_is_refused_in_one_line(run: Run, place: Path, state: Path) -> None:
    before = tree(state)
    for words, said in (
        ([2], f"--redo 2: {state} has no such week; it has weeks 1 to 1"),
        (["rejected/0001-1"], "has no such week"),
        ([1, place / "week-2.parquet"], "--redo takes no NEW_DATA"),
        ([1, "--init", place / "model"], "--init has no effect with --redo"),
        ([1, "--index-week", "1"], "whose model the deployed index was built with"),
        ([1, "--rollback", "0"], "has no effect with --rollback"),
    ):
        check_refused(run(*redo_words(state, *words)), "update", 2, said)
    assert tree(state) == before


@pytest.mark.parametrize("point", _SWAP)
def test_a_swap_that_is_killed_is_completed(
    run: Run, made_again: Path, tmp_path: Path, point: str
) -> None:
    """The week is trained once; its acceptance and the swap are killed at each point."""
    state = made_again.with_name("copy")
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(made_again, state, symlinks=True)
    assert killed_at(point, redo_words(state, 1), tmp_path / "log") < 0
    assert (state / "current" / "checkpoint.json").exists()  # at every moment
    done = run(*redo_words(state, 1))
    assert (done.code, done.out) == (0, f"{state}/weeks/0001/checkpoint\n")
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")
    assert [one.name for one in Layout(state).rolled_back()] == ["0001"]
    actions = [one["action"] for one in bodies(state)]
    assert actions == ["started", "accepted", "redo started", "redone"]
    assert not (state / "redo").exists()


@pytest.fixture(scope="module")
def made_again(after_one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state whose first week was made again and judged, but not accepted yet."""
    state = after_one.with_name("made-again")
    shutil.copytree(after_one, state, symlinks=True)
    log = tmp_path_factory.mktemp("log") / "log"
    assert killed_at("judged", redo_words(state, 1), log) < 0
    assert (state / "redo/pending/verdict.json").exists()
    return state
