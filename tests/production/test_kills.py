"""Updates killed with SIGKILL: the same command line goes on to the same state, bytes and report.

A week is killed before and after each of its command lines, inside its training, and between the
renames that accept it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.processes import exit_code_of, run_line, start_child
from support.production import (
    FAILS,
    PASSES,
    bodies,
    first_words,
    killed_at,
    tree,
    week_words,
)
from support.program import check_refused, run_program

from vlcpctl.production.layout import Layout

WEEKS = 3
GATES = {1: PASSES, 2: PASSES, 3: PASSES}
_TRAINING = ("step=0", "saved", "step=2", "before-rename", "renamed")
_UPDATE = ("prepared", "started", "pending", "judged", "moved", "recorded", "pointed", "accepted")
_LINES = {1: 10, 2: 7, 3: 7}  # three more for the start

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="children can outlive a killed parent"
)


def points(week: int) -> Iterator[str]:
    """Where a week is killed."""
    yield from _UPDATE[:1]
    if week == 1:
        yield "start"
    for line in range(_LINES[week]):
        yield from (f"line {line}", f"after line {line}")
    yield from (*_TRAINING, *_UPDATE[1:])


@pytest.fixture(autouse=True)
def _saves_often(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every step, so that what was killed in the middle of a training is resumed there.
    monkeypatch.setenv("VLCPCTL_TRAIN_STEP_SAVE_EVERY", "1")


def words_of(place: Path, state: Path, week: int) -> list[object]:
    """The command line of a week."""
    first = first_words(place, state) if week == 1 else [*week_words(place, state, week), "-q"]
    return [*first, *GATES[week]]


def undisturbed(
    capfd: pytest.CaptureFixture[str], place: Path, root: Path
) -> Iterator[dict[str, object]]:
    """The state after each week that nothing disturbs."""
    for week in range(1, WEEKS + 1):
        assert run_program(capfd, *words_of(place, root / "prod", week)).code == 0
        yield tree(root)


def kill_and_go_on(
    capfd: pytest.CaptureFixture[str], place: Path, root: Path, week: int, at: str
) -> None:
    """Kill a week at a point; what the same line prints then is the path of its checkpoint."""
    words = words_of(place, root / "prod", week)
    assert killed_at(at, words, root.with_name(f"{root.name}-log")) == -signal.SIGKILL, at
    done = run_program(capfd, *words)
    assert (done.code, done.out) == (0, f"{root}/prod/weeks/{week:04d}/checkpoint\n"), done.err


def test_a_week_killed_once_at_each_kind_of_point_ends_as_an_undisturbed_one(
    place: Path, after_one: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    roots = [after_one.with_name(name) for name in ("calm", "killed")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(after_one, root, symlinks=True)
    calm, killed = roots
    assert run_program(capfd, *words_of(place, calm, 2)).code == 0
    words = words_of(place, killed, 2)
    for at in ("started", "after line 1", "step=2", "judged", "pointed"):
        assert killed_at(at, words, tmp_path / "log") == -signal.SIGKILL, at
    done = run_program(capfd, *words)
    assert (done.code, done.out) == (0, f"{killed}/weeks/0002/checkpoint\n"), done.err
    assert tree(killed) == tree(calm)


@pytest.mark.parametrize("left", [0, 40])
def test_an_accepted_week_has_one_line_if_that_was_killed(
    place: Path, state: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], left: int
) -> None:
    words = words_of(place, state, 2)
    assert killed_at("recorded", words, tmp_path / "log") == -signal.SIGKILL
    ledger = state / "history.ndjson"
    os.truncate(ledger, ledger.stat().st_size - left)  # as if in the middle of the line
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")
    assert run_program(capfd, *words).code == 0
    assert [one["action"] for one in bodies(state)] == ["started", "accepted"] * 2
    assert [one["week"] for one in bodies(state)] == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_killed_training_goes_on_with_other_arithmetic_if_that_is_accepted(
    place: Path,
    state: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = words_of(place, state, 2)
    idle = run_program(capfd, *words, "--accept-inexact")
    check_refused(idle, "update", 2, "--accept-inexact has no effect: there is no unfinished")
    assert killed_at("step=2", words, tmp_path / "log") == -signal.SIGKILL
    # Not --threads 2: OpenMP may have had threads in this process, which hang after a fork.
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    refused = run_program(capfd, *words)
    assert (refused.code, refused.out) == (5, "")
    assert "MKL_CBWR was not set and is now 'COMPATIBLE'; --accept-inexact" in refused.err
    forced = run_program(capfd, *words, "--accept-inexact", "--force", "--dry-run")
    check_refused(forced, "update", 2, "--accept-inexact has no effect with --force")
    inexact = [*words, "--accept-inexact"]
    # Killed again after the training, the same command still goes on.
    assert killed_at("after line 3", inexact, tmp_path / "log") == -signal.SIGKILL
    done = run_program(capfd, *inexact)
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n"), done.err
    assert json.loads((state / "weeks/0002/week.json").read_text())["accept_inexact"] is True
    # What was accepted is not resumed: the next week is made without it.
    later = run_program(capfd, *week_words(place, state, 3), "--dry-run")
    assert "--accept-inexact" not in later.out


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_rollback_killed_at_a_move_is_completed(
    place: Path, state: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], has_moved: bool
) -> None:
    words = ["update", "--state", state, "--rollback", "0"]
    killed = start_child(lambda _: _killed_at_move(words, tmp_path / "log", has_moved=has_moved))
    assert exit_code_of(killed) == -signal.SIGKILL
    assert (state / "current").readlink() == Path("start/checkpoint")
    assert run_program(capfd, "inspect", state).code == 0
    planned = run_program(capfd, *week_words(place, state, 2), "--dry-run")
    assert (planned.code, "# week 1\n" in planned.out) == (0, True), planned.err
    done = run_program(capfd, *words)
    assert (done.code, done.out) == (0, f"{state}/start/checkpoint\n"), done.err
    assert not list((state / "weeks").iterdir())
    assert [path.name for path in (state / "rolled-back").iterdir()] == ["0001"]


def _killed_at_move(words: Sequence[object], log: Path, *, has_moved: bool) -> None:
    """Be a rollback that is killed before or after it moves the first week."""
    move = Layout.move

    def moved(self: Layout, source: Path, target: Path) -> None:
        is_rejected = source == self.pending  # is kept before the rollback begins
        if has_moved or is_rejected:
            move(self, source, target)
        if is_rejected:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    Layout.move = moved  # type: ignore[method-assign]
    run_line(words, log)


@pytest.mark.slow
def test_weeks_killed_at_a_few_points_end_as_undisturbed_ones(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    killed_in = {1: "step=2", 2: "moved", 3: "after line 6"}
    for week, wanted in enumerate(undisturbed(capfd, place, tmp_path / "calm"), start=1):
        kill_and_go_on(capfd, place, tmp_path / "killed", week, killed_in[week])
        assert tree(tmp_path / "killed") == wanted


@pytest.mark.slow
def test_a_killed_rejection_and_a_killed_rollback_are_completed(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "root" / "prod"
    state.parent.mkdir()
    for week in (1, 2):
        assert run_program(capfd, *words_of(place, state, week)).code == 0
    before = tree(state)
    del before["history.ndjson"]
    words = [*week_words(place, state, 3), *FAILS, "-q"]
    for at in ("after line 2", "judged"):
        assert killed_at(at, words, tmp_path / "log") == -signal.SIGKILL
        assert run_program(capfd, *words).code == 7
        after = tree(state)
        assert after.pop("history.ndjson")[-2:] == bodies(state)[4:]
        assert {name: after[name] for name in before} == before
    rollback = ["update", "--state", state, "--rollback", "0"]
    killed = start_child(lambda _: _killed_at_move(rollback, tmp_path / "log", has_moved=True))
    assert exit_code_of(killed) == -signal.SIGKILL
    assert (state / "current").readlink() == Path("start/checkpoint")
    assert run_program(capfd, "update", "--state", state, "--rollback", "0").code == 0
    assert not list((state / "weeks").iterdir())
    assert {path.name for path in (state / "rolled-back").iterdir()} == {"0001", "0002"}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_weeks_killed_at_every_point_end_as_undisturbed_ones(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calm").mkdir()
    wanted = list(undisturbed(capfd, place, tmp_path / "calm"))
    most = max(len(list(points(week))) for week in GATES)
    # Each round kills every week once, at its next point; a week with fewer points starts over.
    for number in range(most):
        root = tmp_path / f"killed-{number}"
        root.mkdir()
        for week in GATES:
            here = list(points(week))
            kill_and_go_on(capfd, place, root, week, here[number % len(here)])
            assert tree(root) == wanted[week - 1], (week, here[number % len(here)])
