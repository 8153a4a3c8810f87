"""A rejected week that is not clear is trained once more, with other draws."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.production import FAILS, PASSES, killed_at, tree, week_words
from support.program import ProgramResult

from vlcpctl.production.attempt import Attempt, Judgement
from vlcpctl.production.update import _is_retried
from vlcpctl.report.report import read_facts

Run = Callable[..., ProgramResult]
WEIGHTS = "checkpoint/open_clip_model.safetensors"


def manifest(checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "checkpoint.json").read_text())
    return found


def verdict(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "verdict.json").read_text())
    return found


def test_the_second_verdict_counts_and_both_are_recorded(
    run: Run, place: Path, state: Path
) -> None:
    words = week_words(place, state, 2)
    done = run(*words, *FAILS)
    assert done.code == 7
    first = (state / "pending" / WEIGHTS).read_bytes()
    assert verdict(state / "pending")["attempts"][0]["attempt"] == 0

    # The rejected week is judged again, and now there is a training left.
    done = run(*words, *FAILS, "--retries", "1")
    assert done.code == 7
    assert "week 2 is rejected, not clearly: own_final.rm is" in done.err
    assert "it is trained once more, with other draws" in done.err
    second = (state / "pending" / WEIGHTS).read_bytes()
    assert second != first
    made = manifest(state / "pending/checkpoint")
    assert (made["seed"], made["identity"]["attempt"]) == (0, 1)
    found = verdict(state / "pending")
    trainings = [(one["attempt"], one["accepted"]) for one in found["attempts"]]
    assert trainings == [(0, False), (1, False)]
    assert found["attempts"][1]["verdicts"] == found["verdicts"]

    # Never more than once, and the training that is there is judged by other conditions.
    done = run(*words, *PASSES, "--json")
    assert done.code == 0
    assert "train-step" not in done.err
    assert [one["accepted"] for one in json.loads(done.out)["attempts"]] == [False, True]
    assert (state / "weeks/0002" / WEIGHTS).read_bytes() == second

    # The next week goes on with the same run and seed.
    assert run(*week_words(place, state, 3), *PASSES, "-q").code == 0
    facts = read_facts((state / "weeks/0003/report/facts.csv").read_text())
    assert {tuple(one["seeds"]) for one in facts if one["metric"] == "own_learned"} == {(0,)}


def test_a_loss_that_is_clear_is_not_trained_again(state: Path) -> None:
    attempt = Attempt.read(state / "weeks/0001")
    for retries, is_clear, is_retried in ((1, False, True), (1, True, False), (0, False, False)):
        settings = attempt.settings.with_given({"retries": retries})
        one = Attempt(**{**vars(attempt), "settings": settings})
        found = {"holds": True, "is_clear": is_clear}
        other = {"holds": False, "is_clear": True}  # above its bound, and not above chance
        judged = Judgement(accepted=False, gates=(), undefined="", verdicts=(found, other))
        assert _is_retried(one, judged) == is_retried
        passed = Judgement(accepted=True, gates=(), undefined="", verdicts=(found,))
        assert not _is_retried(one, passed)


def _killed_and_continued(run: Run, place: Path, state: Path, point: str, log: Path) -> None:
    words = [*week_words(place, state, 2), *FAILS, "--retries", "1", "-q"]
    assert killed_at(point, words, log) == -signal.SIGKILL, point
    assert run(*words).code == 7


@pytest.mark.slow
def test_a_kill_between_two_trainings_leaves_the_same_week(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    before = tree(state)
    words = [*week_words(place, state, 2), *FAILS, "--retries", "1", "-q"]
    assert run(*words).code == 7
    whole = tree(state)
    removed = ("verdict.json", "report", "weeks.ndjson", "guards.parquet", "checkpoint")
    for point in (*(f"without {name}" for name in removed), "begun again"):
        shutil.rmtree(state / "pending")
        shutil.copy(state.with_name("prod") / "history.ndjson", state)
        assert tree(state) == before
        _killed_and_continued(run, place, state, point, tmp_path / "log")
        assert tree(state) == whole, point
