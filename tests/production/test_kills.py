"""Updates killed with SIGKILL at every point that they observe: the same line ends the same.

No line trains or loads a model; their outputs are real.
"""

from __future__ import annotations

import gc
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import (
    FAILS,
    PASSES,
    SETTINGS,
    actions,
    first_words,
    killed_at,
    tree,
    week,
    week_words,
)
from support.program import ProgramResult
from support.stub import Stub

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="children can outlive a killed parent"
)
Run = Callable[..., ProgramResult]
AGAIN = ("--set", "update.retries=1", *FAILS)
EVERY = 99  # of the points of a step, in the default tests: one of each


def story(place: Path, state: Path) -> list[tuple[str, list[object], int]]:
    """What is done to a state, as name, words, and exit code."""

    def given(number: int, *more: object) -> list[object]:
        return ["update", place / f"week-{number}.parquet", "--state", state, *more, "-q"]

    redo_3 = ["update", "--state", state, "-q", "--redo", "3"]
    return [
        ("start and week", [*first_words(place, state), *PASSES], 0),
        ("reject", given(2, *FAILS), 7),
        ("reject, train again", given(2, "--lr", "0.002", *AGAIN), 7),
        ("judge again", given(2, "--lr", "0.002", "--on-accept", "true"), 0),
        ("week", given(3), 0),
        ("redo", ["update", "--state", state, "--redo", "2", "--steps", "2", "-q"], 0),
        ("roll back", ["update", "--state", state, "--rollback", "1"], 0),
        ("take back", ["update", "--state", state, "--redo", "2", "-q"], 0),
        ("redo and keep", [*redo_3, "--steps", "4", "--keep", "1", "--on-accept", "true"], 0),
        ("keep", given(4, "--keep", "1"), 0),
        ("roll back to the start", ["update", "--state", state, "--rollback", "0"], 0),
    ]


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_a_state_is_the_same_wherever_it_was_killed(
    run: Run, place: Path, after_one: Path, state: Path, tmp_path: Path, every: int
) -> None:
    root, log = tmp_path / "here", tmp_path / "log"
    assert run(*week_words(place, state, 2), "-q").code == 0  # imports what each child needs
    gc.freeze()  # what a fork then need not copy
    runner, state, kills = Stub(week(after_one, 1) / "checkpoint"), root / "prod", 0
    root.mkdir()
    for number, (name, words, wanted) in enumerate(story(place, state)):
        before, after = tmp_path / "before", tmp_path / "after"
        shutil.rmtree(before, ignore_errors=True)
        root.rename(before)
        shutil.copytree(before, root, symlinks=True)
        points = log.with_suffix(".points")
        points.unlink(missing_ok=True)
        assert killed_at(-1, words, log, runner) == wanted, (name, Path(f"{log}.err").read_text())
        calm, count = tree(root), len(points.read_text().splitlines())
        shutil.rmtree(after, ignore_errors=True)
        root.rename(after)
        for point in range(7 * number % min(every, count), count, every):
            shutil.copytree(before, root, symlinks=True)
            at = (name, point, points.read_text().splitlines()[point])
            assert killed_at(point, words, log, runner) == -signal.SIGKILL, at
            assert killed_at(-1, words, log, runner) == wanted, (
                at,
                Path(f"{log}.err").read_text()[-2000:],
            )
            found = tree(root)
            assert found == calm, (
                at,
                [x for x in calm if found.get(x) != calm[x]],
                set(found) ^ set(calm),
            )
            shutil.rmtree(root)
            kills += 1
        after.rename(root)
    assert kills >= 10
    assert actions(state)[:4] == ["started", "start", "started", "accepted"]
    assert SETTINGS
