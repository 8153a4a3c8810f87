"""--on-accept and --on-reject: at least once for each week, with their exit codes in the ledger."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.production import FAILS, PASSES, bodies, killed_at, tree, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.production.hooks import ACCEPT, Hooks, run_hook, said_of_missed, why_not
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import Action, record

Run = Callable[..., ProgramResult]
PROGRAM = f"{shlex.quote(sys.executable)} -m vlcpctl"


def runs(state: Path) -> list[tuple[str, int, int]]:
    """The hooks that were run: which, week and exit code."""
    found = [one for one in bodies(state) if one["action"] == "hook"]
    return [(one["hook"], one["week"], one["exit_code"]) for one in found]


def accept(state: Path, command: str) -> int | None:
    """Run this command for the first week, if it is still to run."""
    place = Layout(state)
    hooks = Hooks(on_accept=command)
    return run_hook(place, hooks, ACCEPT, place.week(1), 1, lambda _: None)


def test_the_environment_names_the_week(
    state: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(state.parent)
    assert accept(Path("copy"), "env | grep ^VLCPCTL_") == 0
    out, err = capfd.readouterr()
    assert out == "", "stdout has only what update prints"
    week = state / "weeks/0001"
    found = dict(one.split("=", 1) for one in err.splitlines() if "=" in one)
    assert found == {
        "VLCPCTL_HOOK": "accept",
        "VLCPCTL_STATE": str(state),
        "VLCPCTL_WEEK": "1",
        "VLCPCTL_CHECKPOINT": str(week / "checkpoint"),
        "VLCPCTL_REPORT": str(week / "report/week.html"),
        "VLCPCTL_VERDICT": str(week / "verdict.json"),
    }
    (line,) = [one for one in bodies(state) if one["action"] == "hook"]
    content = json.loads((week / "checkpoint/checkpoint.json").read_text())["content"]
    assert (line["week"], line["hook"], line["exit_code"]) == (1, "accept", 0)
    assert line["checkpoint"] == content


def test_it_runs_until_it_has_succeeded_once(state: Path) -> None:
    given = Hooks(on_accept="true")
    assert said_of_missed(Layout(state), given, 1) is None, "none was ever run"
    accept(state, "exit 2")
    assert "the --on-accept of week 1 has not succeeded" in str(
        said_of_missed(Layout(state), given, 1)
    )
    codes = [accept(state, one) for one in ("exit 3", "exit 3", "kill -9 $$", "true", "exit 3")]
    assert codes == [3, 3, 137, 0, None]
    assert said_of_missed(Layout(state), given, 1) is None
    assert runs(state) == [("accept", 1, code) for code in (2, 3, 3, 137, 0)]
    # A week that a rollback has made the last one again is published again.
    record(Layout(state), [Action(action="rolled back", week=1, weeks=(2,))])
    assert accept(state, "true") == 0
    assert why_not(Layout(state), ACCEPT, 0) == "week 0 is not the last one"


def test_a_line_of_a_hook_does_not_hide_an_action_that_is_repeated(state: Path) -> None:
    accepted = bodies(state)[-1]
    names = ("action", "week", "data", "checkpoint")
    action = Action(
        **{name: accepted[name] for name in names},
        names=tuple(accepted["names"]),
        verdicts=tuple(accepted["verdicts"]),
        settings=accepted.get("settings"),
    )
    assert accept(state, "true") == 0
    before = len(bodies(state))
    record(Layout(state), [action])
    assert len(bodies(state)) == before


def test_in_a_hook_a_state_can_be_read_and_not_updated(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    log, name = tmp_path / "log", shlex.quote(str(state))
    hook = (
        f"{PROGRAM} inspect {name} > {log} 2>&1; echo $? >> {log};"
        f"{PROGRAM} update --state {name} --rollback 0 --wait >> {log} 2>&1"
    )
    done = run(*week_words(place, state, 1), "--on-accept", hook)
    assert (done.code, done.out) == (9, f"{state}/weeks/0001/checkpoint\n")
    said = "week 1 is accepted, and stays so, but --on-accept ended with exit code 4"
    assert said in done.err.splitlines()[-1]
    text = log.read_text()
    assert "warning" not in text
    assert "\n0\nvlcpctl update: " in text, "inspect works"
    assert "is locked by the update whose --on-accept this is, until it ends" in text
    assert runs(state) == [("accept", 1, 4)]
    assert "week 1: --on-accept ended with exit code 4\n" in run("inspect", state).out
    for _ in range(2):
        again = run(*week_words(place, state, 1), "--on-accept", "true")
        assert (again.code, runs(state)[1:]) == (0, [("accept", 1, 0)])
    assert "week 1: --on-accept is not run: it has succeeded\n" in again.err


@pytest.mark.slow
def test_a_rejected_week_has_its_hook_once_for_each_verdict(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    hook = ["--on-reject", f"echo $VLCPCTL_VERDICT >> {log}", "--on-accept", "exit 1", "-q"]
    words = [*week_words(place, state, 2), *hook]
    for _ in range(2):
        done = run(*words, *FAILS)
        assert (done.code, done.out) == (7, "")
    assert log.read_text() == f"{state}/pending/verdict.json\n"
    failing = [*week_words(place, state, 2), "--on-reject", "exit 5", "--fail-if", "rm:le:100"]
    done = run(*failing, "-q")
    assert done.code == 9
    assert "week 2 is rejected, and stays so, but --on-reject ended with exit code 5" in done.err
    assert [one["action"] for one in bodies(state)[2:]] == [
        *("started", "rejected", "hook", "rejected", "hook")
    ]
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")


def test_a_hook_that_was_killed_runs_again_and_the_state_is_the_same(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    hook = f"readlink {shlex.quote(str(state))}/current >> {log}"
    words = [*week_words(place, state, 2), *PASSES, "-q"]
    for at in ("accepted", "hook"):
        assert killed_at(at, [*words, "--on-accept", hook], tmp_path / "out") == -signal.SIGKILL, at
        assert log.exists() is (at == "hook"), at
    assert runs(state) == []
    assert run(*words, "--on-accept", hook).code == 0
    assert runs(state) == [("accept", 2, 0)]
    after = tree(state)
    assert run(*words, "--on-accept", hook).code == 0
    assert tree(state) == after
    assert log.read_text() == "weeks/0002/checkpoint\n" * 2, "it runs once `current` is set"


def test_where_no_week_is_made_hooks_are_shown_or_refused(
    run: Run, place: Path, state: Path
) -> None:
    week, made = week_words(place, state, 2), week_words(place, state, 1)
    hook: list[Any] = ["--on-accept", "notify\nme", "--on-reject", "exit 1"]
    before = tree(state)
    shown = run(*week, *hook, "--dry-run").out
    assert "# once it is accepted, --on-accept is run: notify\\nme\n" in shown
    assert "# once it is rejected, --on-reject is run: exit 1\n" in shown
    assert "# --on-accept is run\n" in run(*made, *hook, "--dry-run").out
    back = ["update", "--state", state, "--rollback", "0", *hook[:2]]
    check_refused(run(*back), "update", 2, "--on-accept has no effect with --rollback")
    check_refused(run(*week, "--on-reject", " "), "update", 2, "--on-reject: the command is empty")
    assert tree(state) == before
