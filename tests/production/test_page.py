"""The page of a week, from the files of a state, and its lines in the terminal."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.production import FAILS, week_words
from support.program import ProgramResult, check_refused

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.attempt import Attempt
from vlcpctl.production.describe import describe_state, state_lines
from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import Call, Lines
from vlcpctl.production.page import read_week, write_page
from vlcpctl.production.records import SECONDS, VERDICT, sealed_record, write_record
from vlcpctl.production.seconds import read_seconds
from vlcpctl.production.state import read_state
from vlcpctl.report.week import _Found

Run = Callable[..., ProgramResult]

GATES = ("--fail-if", "worst_drop:gt:200", "--fail-if", "bwt_gem:lt:-200")
TIMES = re.compile("<time>.*?</time>")


def page_of(week: Path) -> str:
    return (week / "report" / "week.html").read_text(encoding="utf-8")


def said(done: ProgramResult) -> list[str]:
    """The lines of the page in the terminal."""
    lines = done.err.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("prod, week "))
    last = next(place for place, line in enumerate(lines) if line.startswith("  page "))
    return lines[first : last + 1]


def again(state: Path) -> tuple[_Found, bytes]:
    """The page of the pending week made again from its files."""
    place = Layout(state)
    attempt = Attempt.read(place.pending)
    call = Call(data=("week",), quiet=True)
    line = Lines(place, read_state(place), attempt.settings, call).of_week()[-1]
    write_page(place, attempt, line, None)
    facts = _Found(*read_week(place, attempt, line))
    return facts, (place.pending / "report" / "week.html").read_bytes()


def losing_week(run: Run, place: Path, state: Path) -> Path:
    """Let week 2 forget a new guard, and be rejected; the directory of the guard."""
    guard = state.parent / "guard"
    shutil.rmtree(guard, ignore_errors=True)
    words = ["split", place / "earlier.parquet", "-o", guard, "--by", "all:guard"]
    assert run(*words, "--holdout", "test=0.9", "--keep-columns", "customer", "-q").code == 0
    more = ["--guard", guard / "00-guard", "--small-guard", "--lr", "0.5", "--steps", "30", *FAILS]
    done = run(*week_words(place, state, 2), *more, "-q")
    assert done.code == 7, done.err
    return guard


def test_the_page_of_the_first_week_compares_with_the_start(state: Path) -> None:
    page = page_of(state / "weeks/0001")
    assert "<h1>prod, week 1</h1>" in page
    assert "The first week" in page
    assert "learned: week 1" in page
    assert "kept:" not in page
    assert "00-golden" in page


def test_an_accepted_week_is_compared_with_the_week_before(
    run: Run, place: Path, state: Path
) -> None:
    done = run(*week_words(place, state, 2), *GATES, "--lr", "0.5")
    assert done.code == 0, done.err
    page = page_of(state / "weeks/0002")
    shown, folded = page.split("<details>", 1)
    for name in ("learned: week 2", "kept: the earlier week", "<h2>Loss</h2>", "train-step"):
        assert name in shown
    assert re.search("lr</td>.*>0.5</td>", shown), "the setting that differs"
    assert "batch_size" not in shown
    assert "batch_size" in folded
    assert "Earlier weeks, on their own tests" in folded
    # One name for a week.
    assert not re.search("week-000|after [01]|(?<!train-)step [01]", page)
    lines = said(done)
    assert lines[0].startswith("prod, week 2: accepted  (")
    assert sum(not line.startswith("  warning: ") for line in lines) <= 15
    assert not [line for line in lines if line.endswith("...")], "a log is not cut"
    assert lines[-1].split()[-1] == f"{state}/weeks/0002/report/week.html"
    assert "Conditions (--fail-if)" not in done.err + done.out
    quiet = run("update", place / "week-3.parquet", "--state", state, "-q")
    assert "prod, week" not in quiet.err
    assert "<h1>prod, week 3</h1>" in page_of(state / "weeks/0003")


def test_scores_and_intervals_are_those_of_rows_and_ranks(
    run: Run, place: Path, state: Path
) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    facts, _ = again(state)
    rows = {
        (row["step"], row["task"]): row["metrics"]["rm"]
        for week in ("start", "weeks/0001", "pending")
        for file in sorted((state / week / "rows").glob("*.ndjson"))
        for row in map(json.loads, file.read_text().splitlines())
        if "gallery_checkpoint" not in row
    }
    (learned,), (kept,) = facts.learned, facts.kept
    assert (learned.before, learned.now) == (rows[0, "00-week-0002"], rows[1, "01-week-0002"])
    assert (kept.before, kept.now) == (rows[0, "00-week-0001"], rows[1, "00-week-0001"])
    start, before = facts.guards
    now = rows[1, "00-golden"]
    assert (start.before, start.now, start.since) == (rows[None, "00-golden"], now, "the start")
    assert (before.before, before.now, before.since) == (rows[0, "00-golden"], now, "week 1")
    for one in facts.guards:
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.points <= one.high


@pytest.mark.slow
def test_a_rejected_week_has_a_page_which_is_the_same_when_it_is_made_again(
    run: Run, place: Path, state: Path
) -> None:
    done = run(*week_words(place, state, 2), *FAILS)
    assert done.code == 7
    first = page_of(state / "pending")
    assert "do not deploy it: the state stays at week 1" in first
    assert said(done)[0].startswith("prod, week 2: rejected")
    assert done.err.splitlines()[-1].endswith(f"see {state}/pending/report/week.html")
    assert again(state)[1] == first.encode()
    (state / "pending/report/week.html").unlink()
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    assert TIMES.sub("", page_of(state / "pending")) == TIMES.sub("", first)
    # Judged by another bound, it is another page.
    assert run(*week_words(place, state, 2), *GATES, "-q").code == 0
    assert "it may be deployed" in page_of(state / "weeks/0002")


@pytest.mark.slow
def test_seconds_of_commands_add_up_over_calls(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    first = read_seconds(state / "pending")
    assert set(first) == {"split", "eval-retrieval", "train-step", "buffer", "forgetting-report"}
    before = dict.fromkeys(first, 1000.0)
    write_record(state / "pending/seconds.json", SECONDS, {"seconds": before})
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    second = read_seconds(state / "pending")
    assert second["forgetting-report"] > 1000
    assert second["train-step"] == 1000, "it was not trained again"


def test_lost_queries_of_guards_have_pictures_that_forget_removes(
    run: Run, place: Path, state: Path
) -> None:
    guard = losing_week(run, place, state)
    page = page_of(state / "pending")
    keys = set(re.findall('<image id="p-([0-9a-f]{32})"', page))
    assert keys, "the pictures of lost queries"
    known = set(open_task(guard / "00-guard").split("test").keys)
    named = set(re.findall("[0-9a-f]{32}", page)) & known
    assert keys <= named
    key = min(keys)
    listed = state.parent / "keys"
    listed.write_text(f"{key}\n")
    assert run("forget", "--keys", listed, state, guard, "-q").code == 0
    left = page_of(state / "pending")
    assert key not in left
    assert set(re.findall("[0-9a-f]{32}", left)) & known < named
    assert left.endswith("</html>\n")


def test_a_state_without_guards_has_no_lost_queries(run: Run, place: Path, state: Path) -> None:
    done = run(*week_words(place, state, 2), "--guard", "none", *FAILS)
    assert done.code == 7
    page = page_of(state / "pending")
    assert "Lost on guards" not in page
    assert "00-golden" not in page.split("What changed")[0]


def test_inspect_says_in_five_lines_where_a_state_is(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    lines = run("inspect", state).out.splitlines()
    assert lines[0].startswith(f"state {state}: week 1, 20")
    assert lines[1] == f"  current: {state}/weeks/0001/checkpoint"
    assert lines[2].startswith("  verdict: accepted; own_final.rm ")
    assert lines[3] == f"  pending: week 2, rejected: {state}/pending"
    assert lines[4] == f"  page: {state}/pending/report/week.html"


def test_inspect_of_many_weeks_shows_the_last_ones(state: Path) -> None:
    facts = describe_state(state)
    (week,) = facts["weeks"]
    facts["weeks"] = [{**week, "week": number} for number in range(1, 51)]
    lines = list(state_lines(facts))
    assert lines[0].startswith(f"state {state}: week 50, ")
    assert len(lines) < 24
    assert [line.split()[0] for line in lines if re.match(r"  [0-9]", line)] == [
        str(number) for number in range(43, 51)
    ]
    assert any("--json has all 50 weeks" in line for line in lines)


def test_trainings_and_warnings_of_the_verdict_are_shown(
    run: Run, place: Path, state: Path
) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    path = state / "pending/verdict.json"
    found = sealed_record(path, VERDICT)
    body = {name: one for name, one in found.items() if name not in {"schema", "seal", "made_by"}}
    attempts = [{"attempt": place, "accepted": False, "verdicts": []} for place in (0, 1)]
    write_record(path, VERDICT, {**body, "attempts": attempts, "warnings": ["look here"]})
    _, page = again(state)
    assert b"trained 2 times: rejected, then rejected" in page
    assert b"look here" in page


@pytest.mark.slow
def test_a_guard_that_images_names_has_its_lost_queries_in_a_report(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    """--images reaches guards, and is refused where it has no effect."""
    guard = losing_week(run, place, state)
    weeks = [state / name for name in ("start", "weeks/0001", "pending")]
    words: list[object] = ["forgetting-report"]
    words += [file for week in weeks for file in sorted((week / "rows").glob("*.ndjson"))]
    words += ["--run", "prod", "-q", "-o", tmp_path / "report"]
    for name in ("start", "guards"):
        words += ["--ranks", state / f"pending/ranks/{name}.parquet"]
    done = run(*words, "--images", guard)
    assert done.code == 0, done.err
    page = (tmp_path / "report/forgotten.html").read_text(encoding="utf-8")
    assert '<image id="p-' in page
    assert "then: the baseline, now: the last model" in page
    found = json.loads((tmp_path / "report/summary.json").read_text())["forgotten"]["tasks"]
    assert [(one["task"], one["steps"]) for one in found] == [("00-guard", [-1, 1])]
    refused = run(*words, "--images", place / "silver", "--force")
    check_refused(refused, "forgetting-report", 2, "--images has no effect")
    # Without it, reports are what they were.
    assert run(*words, "--force").code == 0
    assert not (tmp_path / "report/forgotten.html").exists()
