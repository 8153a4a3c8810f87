"""Updates killed with SIGKILL: the same command line goes on to the same state, bytes and report.

A week is killed before and after each of its command lines, inside its training, and between the
renames that accept it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.production import (
    FAILS,
    PASSES,
    first_words,
    killed_at,
    make_place,
    tree,
    week_words,
)
from support.program import run_program

WEEKS = 3
GATES = {1: PASSES, 2: PASSES, 3: PASSES}
_TRAINING = ("step=0", "saved", "step=2", "before-rename", "renamed")
_UPDATE = ("prepared", "pending", "judged", "moved", "pointed", "accepted")
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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weeks of pairs, a guard and a model."""
    return make_place(tmp_path_factory.mktemp("place"), WEEKS)


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
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "root" / "prod"
    state.parent.mkdir()
    for week in (1, 2):
        assert run_program(capfd, *words_of(place, state, week)).code == 0
    before = tree(state)
    words = [*week_words(place, state, 3), *FAILS, "-q"]
    for at in ("after line 2", "judged"):
        assert killed_at(at, words, tmp_path / "log") == -signal.SIGKILL
        assert run_program(capfd, *words).code == 7
        after = tree(state)
        assert {name: after[name] for name in before} == before
    from support.processes import exit_code_of, run_line, start_child

    def killed_between_the_moves(_rank: int) -> None:
        import os

        from vlcpctl.production.layout import Layout

        move = Layout.move

        def moved(self: Layout, source: Path, target: Path) -> None:
            move(self, source, target)
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(Layout, "move", moved)
        run_line(["update", "--state", state, "--rollback", "0"], tmp_path / "log")

    assert exit_code_of(start_child(killed_between_the_moves)) == -signal.SIGKILL
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
