"""history.ndjson: one line for each action, in a chain that shows what was changed or removed."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.production import FAILS, PASSES, bodies, tree, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production import describe
from vlcpctl.production.attempt import Attempt, Judgement, Training
from vlcpctl.production.layout import Layout
from vlcpctl.production.ledger import Action, judged_as, read_ledger, record, rejections, started
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]

BEGUN, TAKEN_IN = Action(action="started", week=2), Action(action="readmitted", week=2)
ACCEPTED = Action(action="accepted", week=2, checkpoint="c")
FORGOTTEN = Action(action="forgotten", deletions=("d",), pairs=3)


@pytest.fixture
def root(tmp_path: Path) -> Layout:
    """A directory without a ledger."""
    return Layout(tmp_path)


def actions(place: Layout) -> list[str]:
    """The actions of a ledger, whose chain must hold."""
    return [str(one["action"]) for one in bodies(place.root)]


def rewrite(place: Layout, lines: Sequence[str]) -> None:
    place.history.write_text("".join(lines))


def test_an_action_that_stands_at_the_end_is_not_written_again(root: Layout) -> None:
    record(root, [BEGUN, TAKEN_IN])
    record(root, [FORGOTTEN])
    before = root.history.read_bytes()
    record(root, [BEGUN, TAKEN_IN])
    record(root, [FORGOTTEN])
    assert root.history.read_bytes() == before
    record(root, [ACCEPTED])
    record(root, [BEGUN, TAKEN_IN])  # after another action, it is done once more
    record(root, [FORGOTTEN])
    wanted = ["started", "readmitted", "forgotten", "accepted", "started", "readmitted"]
    assert actions(root) == wanted


def test_a_rollback_that_is_completed_without_its_reason_has_one_line(root: Layout) -> None:
    back = Action(action="rolled back", week=1, weeks=(2,))
    record(root, [replace(back, reason="slow")])
    record(root, [back])
    assert [one.get("reason") for one in bodies(root.root)] == ["slow"]


def test_rejections_count_once_and_not_after_a_rollback(root: Layout) -> None:
    first, second = (
        Action(action="rejected", week=week, data="d", checkpoint=f"c{week}") for week in (1, 2)
    )
    for action in (first, BEGUN, first, second):
        record(root, [action])
    assert [one.number for one in rejections(read_ledger(root))] == [1, 2]
    record(root, [Action(action="rolled back", week=1, weeks=(2,))])
    assert [one.number for one in rejections(read_ledger(root))] == [1]


@pytest.mark.parametrize("left", [0, 1, 40])
def test_a_line_that_was_not_completed_is_written_again(root: Layout, left: int) -> None:
    record(root, [ACCEPTED])
    first = root.history.read_bytes()
    record(root, [BEGUN, TAKEN_IN])
    second = root.history.read_bytes().splitlines(keepends=True)[1]
    root.history.write_bytes(first + second + b'{"schema": "vlcpctl.history/1", "digest":'[:left])
    assert actions(root) == ["accepted", "started"], "readers pass over a part of a line"
    record(root, [BEGUN, TAKEN_IN])
    assert root.history.read_bytes().startswith(first + second)
    assert actions(root) == ["accepted", "started", "readmitted"]


def test_a_body_can_be_removed_without_breaking_the_chain(root: Layout) -> None:
    for action in (BEGUN, ACCEPTED):
        record(root, [action])
    first, second = root.history.read_text().splitlines(keepends=True)
    removed = {**json.loads(first), "body": None}
    rewrite(root, [json.dumps(removed) + "\n", second])
    assert read_ledger(root).problem is None
    record(root, [FORGOTTEN])
    ledger = read_ledger(root)
    assert [one and one.action for one in ledger.actions] == [None, "accepted", "forgotten"]
    assert ledger.problem is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: [one[0], one[1].replace('"c"', '"d"'), one[2]], ":2 has changed"),
        (lambda one: [one[0], one[2]], ":2 does not follow the line before it"),
        (lambda one: [one[1], one[0], one[2]], ":1 does not follow the line before it"),
        (lambda one: [one[0], "{\n", one[2]], ":2 is not readable JSON"),
        (lambda one: [one[0].replace("history/1", "history/2"), *one[1:]], "this version reads"),
    ],
)
def test_a_broken_chain_is_said(
    root: Layout, change: Callable[[list[str]], list[str]], said: str
) -> None:
    for action in (BEGUN, ACCEPTED, FORGOTTEN):
        record(root, [action])
    rewrite(root, change(root.history.read_text().splitlines(keepends=True)))
    assert said in str(read_ledger(root).problem)


def test_what_a_week_is_called_and_each_training_of_it(state: Path) -> None:
    now, attempt = read_state(Layout(state)), Attempt.read(state / "weeks/0001")
    lost = {"condition": "worst_drop:gt:2", "value": 3.0, "outcome": "fails", "se": 1.0}
    open_ = {**lost, "holds": False, "is_resolved": False, "outcome": "passes, not resolved"}
    trainings = (
        Training(attempt=0, accepted=False, verdicts=(lost,)),
        Training(attempt=1, accepted=True, verdicts=(open_,)),
    )
    judged = Judgement(accepted=True, gates=(), undefined="", verdicts=(open_,), attempts=trainings)
    found = judged_as(now, attempt, judged, "c")
    assert found.action == "unresolved"
    assert [(one["attempt"], one["outcome"]) for one in found.verdicts] == [
        *((0, "fails"), (1, "passes, not resolved"))
    ]
    assert set(found.verdicts[0]) == {"condition", "value", "outcome", "attempt"}
    begun, taken_in = started(now, replace(attempt, readmitted=("d",), reason="asked for"))
    assert (begun.action, begun.deletions) == ("started", ())
    assert (taken_in.action, taken_in.deletions) == ("readmitted", ("d",))
    assert begun.reason == taken_in.reason == "asked for"


def test_the_ledger_tells_what_happened_to_a_state(run: Run, place: Path, state: Path) -> None:
    assert [one["action"] for one in bodies(state)] == ["started", "accepted"]
    assert run(*week_words(place, state, 2), *FAILS, "-q", "--reason", "Monday").code == 7
    assert run(*week_words(place, state, 2), *PASSES, "-q", "--reason", "we need it").code == 0
    (key, *_) = open_task(state / "weeks/0002/stream/00-week-0002").split("train").keys
    for _ in range(2):
        assert run("forget", "--key", key, state, "-q", "--ticket", "T-7").code == 0
    assert run("update", "--state", state, "--rollback", "1", "--reason", "too slow").code == 0
    assert run("update", "--state", state, "--rollback", "1").code == 0  # changes nothing
    _, _, begun, rejected, accepted, forgotten, back = bodies(state)
    assert {one["user"] for one in bodies(state)} == {pwd.getpwuid(os.getuid()).pw_name}
    made = json.loads((state / "rolled-back/0002/checkpoint/checkpoint.json").read_text())
    gates = {"fail_if": {"was": ["rm:lt:0"], "is": ["rm:ge:0"]}}
    (verdict,) = rejected["verdicts"]
    assert (begun["action"], begun["week"], begun["names"]) == (
        "started",
        2,
        [f"{place.name}/week-2.parquet"],
    )
    assert (begun["settings"], begun["reason"]) == (gates, "Monday")
    assert (rejected["action"], rejected["settings"]) == ("rejected", gates)
    assert (verdict["condition"], verdict["outcome"], verdict["attempt"]) == ("rm:ge:0", "fails", 0)
    assert (accepted["action"], accepted["reason"]) == ("accepted", "we need it")
    assert {accepted["data"], rejected["data"], begun["data"]} == {begun["data"]}
    assert {accepted["checkpoint"], rejected["checkpoint"]} == {made["content"]}
    assert (forgotten["pairs"], forgotten["receipt"]) == (1, "receipts/0001.json")
    assert (back["week"], back["weeks"], back["reason"]) == (1, [2], "too slow")
    shown = run("inspect", state)
    assert shown.code == 0
    assert "  history, the last 5 of 7 actions:\n" in shown.out
    assert f"week 2 rejected ({place.name}/week-2.parquet; other fail_if): rm:ge:0: " in shown.out
    assert "1 pair forgotten, see receipts/0001.json; reason: T-7\n" in shown.out
    assert "rolled back to week 1, from 1 later week; reason: too slow\n" in shown.out
    judged = json.loads((state / "rolled-back/0002/verdict.json").read_text())["made_by"]["time"]
    assert f"  rolled back: 0002 of {judged[:10]} ({state}/rolled-back)\n" in shown.out
    lines = json.loads(run("inspect", state, "--json").out)["history"]
    assert lines == [json.loads(one) for one in (state / "history.ndjson").read_text().splitlines()]


def test_a_line_shows_what_the_last_training_of_a_rejected_week_lost() -> None:
    verdicts = [
        {"condition": "worst_drop:gt:2", "value": value, "outcome": "fails", "attempt": attempt}
        for attempt, value in enumerate((4.0, 5.0))
    ]
    body = {"action": "rejected", "time": "2026-11-09T08:00:00", "user": "u", "host": "h"}
    body |= {"week": 2, "names": ["w2"], "verdicts": verdicts}
    *_, line = describe._history({"path": "prod", "history": [{"body": body}]})
    assert line.endswith("week 2 rejected (w2): worst_drop:gt:2: 5.00")


def test_a_broken_ledger_is_refused_before_anything_is_made(
    run: Run, place: Path, state: Path
) -> None:
    path = state / "history.ndjson"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[1])
    before, recorded = path.read_bytes(), (state / "state.json").read_bytes()
    said = f"{path}:1 does not follow the line before it: lines are missing or moved; restore"
    for words in (
        *(week_words(place, state, 2), [*week_words(place, state, 2), "--dry-run"]),
        ["update", "--state", state, "--rollback", "0"],
    ):
        check_refused(run(*words), "update", 3, said)
    shown = run("inspect", state)
    assert (shown.code, said in shown.err) == (3, True)
    assert f"week 1 accepted ({place.name}/week-1.parquet)" in shown.out
    assert (path.read_bytes(), (state / "state.json").read_bytes()) == (before, recorded)
    assert not (state / "pending").exists()
    # The pairs are removed all the same.
    (key, *_) = open_task(state / "weeks/0001/stream/00-week-0001").split("train").keys
    done = run("forget", "--key", key, state)
    assert (done.code, "is not in the ledger" in done.err) == (0, True)


def test_a_state_from_before_starts_its_ledger_with_the_next_action(
    run: Run, place: Path, state: Path
) -> None:
    (state / "history.ndjson").unlink()
    before = tree(state)
    assert run("inspect", state).code == 0
    assert tree(state) == before
    assert run("update", "--state", state, "--rollback", "0", "-q").code == 0
    assert [one["action"] for one in bodies(state)] == ["rolled back"]
