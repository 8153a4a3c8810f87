"""`vlcpctl update`: weeks are accepted or rejected, and nothing in between is ever seen."""

from __future__ import annotations

import json
import shlex
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.pair_files import write_parquet
from support.production import (
    FAILS,
    PASSES,
    SETTINGS,
    first_words,
    tree,
    week_words,
)
from support.program import ProgramResult, check_refused

from vlcpctl.commands.update import _settings
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.production.attempt import Attempt
from vlcpctl.production.guards import find_guards
from vlcpctl.production.layout import MOST_WEEKS, Layout
from vlcpctl.production.records import STATE, VERDICT, WEEK, write_record
from vlcpctl.production.settings import GATES, Settings
from vlcpctl.production.state import read_state
from vlcpctl.production.update import _continue
from vlcpctl.testing.tiny_stream import make_task

Run = Callable[..., ProgramResult]


def rows_of(directory: Path) -> list[dict[str, object]]:
    files = sorted((directory / "rows").glob("*.ndjson"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_an_image_that_only_decoding_finds_damaged_is_left_out_and_counted(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    """Its week could not be made, whatever --max-skip allows: each training would end at it."""
    rows = pq.read_table(place / "week-2.parquet").to_pylist()
    whole = rows[3]["image"]
    at = whole.index(b"IDAT")
    end = at + 4 + int.from_bytes(whole[at - 4 : at])
    broken = b"IDAT" + whole[at + 4 : at + 6] + b"\xff" * (end - at - 6)  # all but zlib's header
    checked = broken + zlib.crc32(broken).to_bytes(4)
    rows[3]["image"] = whole[:at] + checked + whole[end + 4 :]
    write_parquet(tmp_path / "week-2.parquet", rows)
    words = ["update", tmp_path / "week-2.parquet", "--state", state, *PASSES, "-q"]
    assert run(*words).code == 6
    assert run(*words, "--max-skip", "1").code == 0
    stream = state / "weeks/0002/stream/stream.json"
    assert json.loads(stream.read_text())["skipped"] == {"broken image": 1}


def test_a_week_is_accepted_and_the_link_names_its_checkpoint(
    run: Run, place: Path, state: Path
) -> None:
    assert (state / "current").readlink() == Path("weeks/0001/checkpoint")
    done = run(*week_words(place, state, 2), "-q")
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n")
    assert (state / "current").readlink() == Path("weeks/0002/checkpoint")
    assert sorted(path.name for path in state.iterdir()) == [
        *("current", "embeddings", "history.ndjson", "start", "state.json", "weeks")
    ]
    assert not (state.parent / ".copy.vlcpctl").exists()
    recorded = json.loads((state / "state.json").read_text())
    assert [week["number"] for week in recorded["weeks"]] == [1, 2]
    (gate,) = recorded["weeks"][1]["verdicts"]
    assert (gate["condition"], gate["holds"]) == ("rm:lt:0", False)
    # The new checkpoint on both weeks; the start and the last one on the new week, once.
    rows = rows_of(state / "weeks" / "0002")
    of_index = [row for row in rows if "gallery_checkpoint" in row]
    assert len(of_index) == 4  # by the old model alone, on its index, the mixed one, a new one
    assert {row["task"] for row in of_index} == {"00-golden"}
    tasks = [(row["run"], row["step"], row["task"]) for row in rows if row not in of_index]
    assert sorted(tasks, key=str) == [
        ("prod", 0, "00-week-0002"),
        ("prod", 1, "00-golden"),
        ("prod", 1, "00-week-0001"),
        ("prod", 1, "01-week-0002"),
        ("trained", None, "00-week-0002"),
    ]


@pytest.mark.slow
def test_the_report_has_the_start_the_guard_and_a_gate_on_both(
    run: Run, place: Path, state: Path
) -> None:
    gates = ["--fail-if", "worst_drop:gt:200", "--fail-if", "bwt_gem:lt:-200"]
    assert run(*week_words(place, state, 2), *gates, "-q").code == 0
    summary = json.loads((state / "weeks" / "0002" / "report" / "summary.json").read_text())
    drop, bwt = summary["verdicts"]
    assert (drop["data"], drop["holds"]) == ("00-golden", False)
    assert bwt["value"] is not None
    text = (state / "weeks" / "0002" / "report" / "report.md").read_text()
    assert "start" in text
    assert "fwt\\_gem" in text


def test_the_same_line_again_prints_the_same_path(run: Run, place: Path, state: Path) -> None:
    before = tree(state)
    moved = shutil.copy(place / "week-1.parquet", state.parent / "renamed.parquet")
    for data in (place / "week-1.parquet", moved):
        done = run("update", data, "--state", state, "--init", place / "model")
        assert (done.code, done.out) == (0, f"{state}/weeks/0001/checkpoint\n")
        assert "already accepted as week 1" in done.err
    assert tree(state) == before


@pytest.mark.slow
def test_the_same_line_again_writes_the_junit_file_of_the_recorded_decision(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    first, again = tmp_path / "first.xml", tmp_path / "again.xml"
    # Undefined until the second week, and excused; and a condition that does not hold.
    gates = [*PASSES, "--fail-if", "bwt_gem:lt:-200", "--undefined", "pass"]
    made = run(*week_words(place, state, 2), *gates, "--junit", first)
    assert made.code == 0
    # The report is named where it is in the end, and nothing where it was made.
    shown = [one for one in made.err.splitlines() if not one.startswith("[")]
    assert f"{state}: week 2 is accepted; its page is {state}/weeks/0002/report/week.html" in shown
    assert (state / "weeks/0002/report/week.html").is_file()
    assert not [one for one in shown if "/pending" in one]
    before = tree(state)
    done = run(*week_words(place, state, 2), "--junit", again)
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n")
    assert again.read_bytes() == first.read_bytes()
    assert first.read_text().count("<testcase") == 2
    inside = state / "weeks/0002/report/gates.xml"
    refused = run(*week_words(place, state, 2), "--junit", inside)
    assert refused.code == 2
    assert tree(state) == before


def test_a_junit_file_that_cannot_be_written_is_refused_before_the_training(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.xml").write_text("mine")
    (tmp_path / "link.xml").symlink_to("mine.xml")
    for name in ("mine.xml", "link.xml"):
        check_refused(run(*week_words(place, state, 2), "--junit", tmp_path / name), "update", 4)
        assert not (state / "pending").exists()


def test_settings_that_accepted_data_were_not_made_with_are_refused(
    run: Run, place: Path, state: Path
) -> None:
    before = tree(state)
    words = week_words(place, state, 1)
    golden = ["--guard", place / "golden" / "00-golden"]
    assert run(*words, *golden, *SETTINGS, *PASSES).code == 0
    refused = run(*words, *SETTINGS, *FAILS, "--lr", "0.5", "--guard", "none", "--fresh-state")
    names = "--fail-if, --lr, --guard, --fresh-state"
    check_refused(refused, "update", 4, "already accepted as week 1", "would not be applied")
    assert {one.strip(",") for one in refused.err.split() if one.startswith("--")} == {
        *names.split(", ")
    }
    assert tree(state) == before


def test_a_rejected_week_changes_nothing_and_leaves_no_rows(
    run: Run, place: Path, state: Path
) -> None:
    before = tree(state)
    lines = before.pop("history.ndjson")
    written = (state / "state.json").read_bytes()
    for _ in range(2):
        done = run(*week_words(place, state, 2), *FAILS, "-q")
        assert (done.code, done.out) == (7, "")
        assert "week 2 is rejected: own_final.rm is" in done.err
        assert "the state stays at week 1" in done.err
        after = tree(state)
        assert before.items() <= after.items()
        assert (state / "state.json").read_bytes() == written
        new = after.pop("history.ndjson")[len(lines) :]
        assert [one["action"] for one in new] == ["started", "rejected"]  # once
        assert all(name.startswith("pending/") for name in after.keys() - before.keys())
    assert (state / "pending" / "report" / "report.html").is_file()
    # Another week: nothing of the rejected one is in it.
    rejected = json.loads((state / "pending" / "checkpoint" / "checkpoint.json").read_text())
    assert run(*week_words(place, state, 3), *PASSES, "-q").code == 0
    assert not (state / "pending").exists()
    for name, content in tree(state / "weeks").items():
        assert rejected["content"] not in str(content), name


def test_a_rejected_week_is_judged_again_by_other_gates_without_training(
    run: Run, place: Path, state: Path
) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    weights = state / "pending" / "checkpoint" / "open_clip_model.safetensors"
    inode = weights.stat().st_ino
    done = run(*week_words(place, state, 2), *PASSES, "--json")
    assert done.code == 0
    assert "train-step" not in done.err
    found = json.loads(done.out)
    assert (found["week"], found["accepted"]) == (2, True)
    assert found["checkpoint"] == f"{state}/weeks/0002/checkpoint"
    checkpoint = state / "weeks" / "0002" / "checkpoint"
    assert (checkpoint / "open_clip_model.safetensors").stat().st_ino == inode


def test_a_condition_that_is_not_given_again_is_named(run: Run, place: Path, state: Path) -> None:
    words = [*week_words(place, state, 2), "--dry-run"]
    assert "judged" not in run(*words, *FAILS).err
    warned = run(*words, "--fail-if", "worst_drop:gt:200").err
    assert "warning: this week is not judged by rm:lt:0: an option" in warned


@pytest.mark.slow
def test_a_rejected_week_with_other_settings_is_trained_again(
    run: Run, place: Path, state: Path
) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    assert run(*week_words(place, state, 2), *PASSES, "--steps", "2", "-q").code == 0
    trained = json.loads((state / "weeks/0002/checkpoint/checkpoint.json").read_text())
    assert trained["pairs"] == 8
    # The options are kept: the next week has them, too.
    dry = run(*week_words(place, state, 3), "--dry-run")
    assert "--steps 2" in dry.out
    assert "--fail-if rm:lt:0" in dry.out


def test_without_conditions_the_defaults_judge(run: Run, place: Path, tmp_path: Path) -> None:
    done = run(*first_words(place, tmp_path / "prod"), "--dry-run")
    (report,) = [line for line in done.out.splitlines() if "forgetting-report" in line]
    gates = " ".join(f"--fail-if {one}" for one in GATES)
    rule = f"--undefined pass --false-alarms {1 / 52:.6g}"
    assert report == f"{report.partition(' --fail-if')[0]} {gates} {rule} -q"
    assert not (tmp_path / "prod").exists()


def test_training_and_evaluations_get_log(run: Run, place: Path, tmp_path: Path) -> None:
    log = ("--log", "tensorboard:board")
    printed = run(*first_words(place, tmp_path / "prod"), *log, "--dry-run").out
    logged = [line.split()[1] for line in printed.splitlines() if " ".join(log) in line]
    assert set(logged) == {"train-step", "eval-retrieval"}
    assert run(*first_words(place, tmp_path / "prod"), "--log", "x", "--dry-run").code == 2


@pytest.mark.slow
def test_the_printed_lines_run_through_batch_make_the_same_week(
    run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "with a space"
    assert run(*first_words(place, there / "prod"), *PASSES).code == 0
    here.mkdir()
    monkeypatch.chdir(here)
    printed = run(*first_words(place, Path("prod")), *PASSES, "--dry-run").out
    lines = here / "lines"
    lines.write_text(printed)
    links = [line for line in printed.splitlines() if line.startswith(("# mkdir", "# cp"))]
    for line in links:
        words = shlex.split(line.removeprefix("# "))
        if words[0] == "mkdir":
            Path(words[-1]).mkdir(parents=True)
        else:
            shutil.copytree(words[-2], words[-1])
    assert len(links) == 2
    assert run("batch", lines).code == 0
    made, wanted = tree(here / "prod"), tree(there / "prod")
    assert {name for name in wanted if not name.startswith(("weeks/0001/", "start/"))} == {
        *("current", "history.ndjson", "state.json")
    }
    for name, content in made.items():
        assert content == wanted[name.replace("pending", "weeks/0001")], name
    left = {name.replace("pending", "weeks/0001") for name in made}
    assert wanted.keys() - left == {
        *("current", "history.ndjson", "state.json"),
        *("weeks/0001/week.json", "weeks/0001/verdict.json", "weeks/0001/seconds.json"),
        "weeks/0001/report/week.html",
    }


def test_rollback_takes_weeks_back_and_their_rows(run: Run, place: Path, state: Path) -> None:
    first = tree(state)
    for number in (2, 3):
        assert run(*week_words(place, state, number), "-q", "--steps", "2").code == 0
    # A week that is being made, and a file of somebody else in it.
    (state / "pending" / "stream").mkdir(parents=True)
    week = json.loads((state / "weeks/0003/week.json").read_text())
    attempt = {name: week[name] for name in week if name not in {"schema", "seal", "made_by"}}
    write_record(state / "pending" / "week.json", WEEK, {**attempt, "number": 4})
    (state / "pending" / "notes.txt").touch()
    rollback = ["update", "--state", state, "--rollback", "1"]
    (state / "weeks/0001/week.json").rename(state / "week.json")
    before = tree(state)
    check_refused(run(*rollback), "update", 3, "week.json is missing; restore it from a backup")
    assert tree(state) == before
    # State.json has what the same line again needs.
    assert run(*week_words(place, state, 1)).code == 0
    (state / "week.json").rename(state / "weeks/0001/week.json")
    pending = f"{state}/pending, the unfinished week 4, is removed"
    assert f"# {pending}\n" in run(*rollback, "--dry-run").out
    done = run(*rollback)
    assert (done.code, done.out) == (0, f"{state}/weeks/0001/checkpoint\n")
    assert f"week 3 is kept in {state}/rolled-back/0003" in done.err
    assert pending in done.err
    assert f"{state}/pending keeps what update has not made: notes.txt" in done.err
    assert [path.name for path in (state / "pending").iterdir()] == ["notes.txt"]
    shutil.rmtree(state / "pending")
    after = tree(state)
    kept = {name for name in after if name.startswith("rolled-back/")}
    assert after.pop("history.ndjson")[-1]["weeks"] == [2, 3]
    del first["history.ndjson"]
    assert {name: after[name] for name in after.keys() - kept} == first
    # Its data can be accepted again; the rows of the other model are in no report.
    other = json.loads((state / "rolled-back/0002/checkpoint/checkpoint.json").read_text())
    assert run(*week_words(place, state, 2), "-q").code == 0
    summary = (state / "weeks/0002/report/summary.json").read_text()
    assert other["content"] not in summary
    assert all(row["checkpoint"] != other["content"] for row in rows_of(state / "weeks/0002"))
    done = run("update", "--state", state, "--rollback", "0", "--json")
    assert done.code == 0
    assert f"week 2 is kept in {state}/rolled-back/0002-2" in done.err
    assert (state / "current").readlink() == Path("start/checkpoint")
    assert sorted(path.name for path in (state / "rolled-back").iterdir()) == [
        *("0001", "0002", "0002-2", "0003")
    ]
    check_refused(run("update", "--state", state, "--rollback", "1"), "update", 2, "only 0")


def test_rollback_takes_nothing_else(run: Run, place: Path, state: Path) -> None:
    for more, said in (
        (["--lr", "1"], "--lr has no effect with --rollback"),
        (["--seed", "0"], "--seed has no effect with --rollback"),
        (["--force"], "--force has no effect with --rollback"),
        (["--run", "x"], "--run has no effect with --rollback"),
        ([place / "week-2.parquet"], "takes no NEW_DATA"),
    ):
        check_refused(run("update", "--state", state, "--rollback", "0", *more), "update", 2, said)
    before = tree(state)
    dry = run("update", "--state", state, "--rollback", "0", "--dry-run")
    assert dry.out == f"# {state}/weeks/0001 becomes {state}/rolled-back/0001\n"
    assert tree(state) == before


@pytest.mark.slow
def test_a_new_guard_is_measured_on_the_start_and_an_old_one_can_be_dropped(
    run: Run, place: Path, state: Path
) -> None:
    silver = ["--guard", place / "silver" / "00-silver", "--small-guard"]
    gate = ["--fail-if", "worst_drop:gt:200"]
    assert run(*week_words(place, state, 2), *silver, *gate, "-q").code == 0
    rows = [row for row in rows_of(state / "weeks" / "0002") if row["task"] == "00-silver"]
    rows = [row for row in rows if "gallery_checkpoint" not in row]
    assert sorted(str(row["step"]) for row in rows) == ["1", "None"]
    summary = json.loads((state / "weeks/0002/report/summary.json").read_text())
    assert [one["data"] for one in summary["verdicts"]] == ["00-silver"]
    without = run(*week_words(place, state, 3), "--index-week", "none", "--dry-run").out
    assert "--gallery-checkpoint" not in without
    assert "index-kept" not in without
    # The third week measures the start on neither again.
    dry = run(*week_words(place, state, 3), "--dry-run").out
    # The evaluation of the new checkpoint, three of the index, and --guard.
    assert dry.count("00-silver") == 5
    words = [*week_words(place, state, 3), "--guard", "none", "--fail-if", "none"]
    without = run(*words, "--dry-run")
    assert "silver" not in without.out
    assert "--fail-if" not in without.out
    assert "week 3 is accepted unjudged, since no --fail-if is set" in run(*words).err


@pytest.mark.slow
def test_classes_are_guards_too(run: Run, place: Path, state: Path) -> None:
    words = ["--guard-classes", place / "golden" / "00-golden"]
    gate = ["--fail-if", "drop:gt:200", "--fail-if", "bwt_gem.rm:lt:-200"]
    assert run(*week_words(place, state, 2), *words, *gate, "-q").code == 0
    gates = json.loads((state / "weeks/0002/report/summary.json").read_text())["verdicts"]
    assert sorted(one["metric"] for one in gates) == ["bwt_gem.rm", "drop.acc1", "drop.rm"]
    # Dropped again, its rows in earlier weeks are no reason for a gate.
    without = [*week_words(place, state, 3), "--guard-classes", "none", "-q"]
    assert run(*without).code == 0
    gates = json.loads((state / "weeks/0003/report/summary.json").read_text())["verdicts"]
    assert sorted(one["metric"] for one in gates) == ["bwt_gem.rm", "drop.rm"]


def test_a_guard_that_changed_is_refused(run: Run, place: Path, state: Path) -> None:
    guard = place / "golden" / "00-golden" / "task.json"
    text = guard.read_text()
    try:
        shutil.move(guard.parent, guard.parent.with_name("moved"))
        make_task(guard.parent, splits={"train": 4, "test": 4})
        refused = run(*week_words(place, state, 2))
        check_refused(refused, "update", 3, "00-golden has changed: its content id was", "--guard")
        again = ["--guard", guard.parent, "--small-guard", "--dry-run"]
        assert run(*week_words(place, state, 2), *again).code == 0
        shutil.rmtree(guard.parent)
        check_refused(run(*week_words(place, state, 2)), "update", 3, "00-golden does not exist")
    finally:
        shutil.rmtree(guard.parent, ignore_errors=True)
        shutil.move(guard.parent.with_name("moved"), guard.parent)
    assert guard.read_text() == text


def test_a_week_of_the_state_is_not_a_guard(run: Run, place: Path, state: Path) -> None:
    week = state / "weeks" / "0001" / "stream" / "00-week-0001"
    refused = run(*week_words(place, state, 2), "--guard", week)
    check_refused(refused, "update", 2, f"--guard {week} belongs to {state}")
    shutil.copytree(week, state / "rolled-back/0001/stream/00-week-0001")
    refused = run(
        *week_words(place, state, 2), "--guard", state / "rolled-back/0001/stream/00-week-0001"
    )
    check_refused(refused, "update", 2, f"belongs to {state}")


def test_the_state_directory_is_not_a_guard(run: Run, place: Path, state: Path) -> None:
    shutil.copytree(place / "golden/00-golden", state, dirs_exist_ok=True)
    for option in ("--guard", "--distractors", "--reference"):
        refused = run(*week_words(place, state, 2), option, state)
        check_refused(refused, "update", 2, f"{state} belongs to {state}", "give a task outside")


def test_a_guard_given_by_two_paths_is_one(run: Run, place: Path, state: Path) -> None:
    link = state.parent / "linked"
    link.symlink_to(place / "golden/00-golden")
    try:
        guards = ["--guard", link, "--guard", place / "golden/00-golden", "--small-guard"]
        assert run(*week_words(place, state, 2), *guards, "--dry-run").code == 0
    finally:
        link.unlink()


def test_guards_of_one_name_are_refused(run: Run, place: Path, tmp_path: Path) -> None:
    make_task(tmp_path / "one" / "00-tiny", splits={"train": 4, "test": 4})
    make_task(tmp_path / "two" / "00-tiny", splits={"train": 4, "test": 4}, first=50)
    guards = ["--guard", tmp_path / "one" / "00-tiny", "--guard", tmp_path / "two" / "00-tiny"]
    refused = run(*first_words(place, tmp_path / "prod"), *guards)
    check_refused(refused, "update", 2, "2 tasks have the name 00-tiny", "--by all:NAME")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--fail-if", "rm:lt"], 2, "--fail-if takes METRIC:OP:VALUE"),
        (["--fail-if", "worst_dorp:gt:2"], 2, "did you mean 'worst_drop'"),
        (["--fail-if", "acc1:lt:2"], 2, "unknown metric 'acc1'"),
        (["--undefined", "maybe"], 2, "(known: error, pass)"),
        (["--method", "ctpp"], 2, "did you mean 'ctp'"),
        (["--policy", "rservoir"], 2, "did you mean 'reservoir'"),
        (["--buffer-size", "many"], 2, "--buffer-size is 'many'"),
        (["--holdout", "test"], 2, "--holdout 'test'"),
        (["--holdout", "test=1.0"], 2, "leaves none to train on"),
        (["--preset", "tinny"], 2, "did you mean 'tiny'"),
        (["--guard", "nowhere"], 3, "nowhere does not exist"),
        (["--seed", "1"], 2, "--seed: the buffer of"),
        (["--buffer-size", "5%"], 2, "was made with a number, not a share"),
        (["--run", "other"], 2, "is prod, and --run names it only with --init"),
    ],
)
def test_a_mistake_is_found_before_anything_is_made(
    run: Run, place: Path, state: Path, words: list[str], code: int, said: str
) -> None:
    before = tree(state)
    check_refused(run(*week_words(place, state, 2), *words), "update", code, said)
    assert tree(state) == before


@pytest.mark.parametrize(("size", "asks"), [("60000", False), ("60001", True)])
def test_a_large_herding_buffer_says_from_how_many_it_chooses(
    run: Run, place: Path, tmp_path: Path, size: str, *, asks: bool
) -> None:
    """The line would otherwise be refused, after the training."""
    words = [*first_words(place, tmp_path / "prod"), "--policy", "herding", "--buffer-size", size]
    (line, *_) = [one for one in run(*words, "--dry-run").out.splitlines() if " buffer " in one]
    assert ("--candidates 300005 " in line) == asks


def test_a_run_with_too_many_tasks_is_refused_before_it_trains(
    run: Run, place: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_WEEKS < MOST_TASKS
    monkeypatch.setattr("vlcpctl.training.task_history.MOST_TASKS", 1)
    words = ["train-step", place / "golden" / "00-golden", "--method", "seqf", "--dry-run"]
    words += ["--preset", "tiny", "--batch-size", "4", "--run", "prod"]
    previous = ["--previous", state / "weeks/0001/checkpoint", "-o", state / "checkpoint"]
    refused = run(*words, *previous)
    check_refused(refused, "train-step", 2, "would be step 1 of run 'prod'", "another --run")


def test_a_start_is_asked_for_once(run: Run, place: Path, state: Path, tmp_path: Path) -> None:
    data = place / "week-2.parquet"
    check_refused(run("update", data, "--state", tmp_path / "new"), "update", 2, "--init")
    other = run("update", data, "--state", state, "--init", place / "trained")
    check_refused(other, "update", 2, "was started with --init", "leave these options out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").touch()
    foreign = run("update", data, "--state", tmp_path / "mine", "--init", place / "model")
    check_refused(foreign, "update", 4, "is not a state directory")
    check_refused(run("update", "--state", state), "update", 2, "NEW_DATA is missing")
    lost = run("update", tmp_path / "nothing.parquet", "--state", state)
    check_refused(lost, "update", 3, "nothing.parquet")


@pytest.mark.slow
def test_a_start_that_failed_keeps_no_option_of_the_call(
    run: Run, place: Path, tmp_path: Path
) -> None:
    first = [*first_words(place, tmp_path / "prod"), *PASSES]
    failed = run(*first, "--guard-classes", "nowhere")
    assert failed.code == 2
    assert "correct what its error names" in failed.err.splitlines()[-1]
    assert "nowhere" not in run(*first, "--dry-run").out
    assert run(*first).code == 0


def test_a_first_week_without_a_buffer_refuses_methods_that_need_one(
    run: Run, place: Path, tmp_path: Path
) -> None:
    state = tmp_path / "prod"
    first = ["update", place / "week-1.parquet", "--state", state, "--init", place / "model"]
    refused = run(*first, "--method", "er", *SETTINGS)
    check_refused(refused, "update", 2, "method er replays a buffer", "--buffer-from DATA")
    assert not state.exists()


@pytest.mark.slow
def test_a_start_that_was_trained_on_tasks_is_no_run_of_the_report(
    run: Run, place: Path, tmp_path: Path
) -> None:
    state = tmp_path / "prod"
    first = [*first_words(place, state), "--fail-if", "worst_drop:gt:200"]
    first[first.index(place / "model")] = place / "trained"
    assert run(*first).code == 0
    gates = ["--fail-if", "worst_drop:gt:200", "--fail-if", "bwt_gem:lt:-200"]
    assert run(*week_words(place, state, 2), *gates, "-q").code == 0
    summary = json.loads((state / "weeks" / "0002" / "report" / "summary.json").read_text())
    assert [(one["run"], one["data"]) for one in summary["verdicts"]] == [
        ("prod", "00-golden"),
        ("prod", None),
    ]


@pytest.mark.slow
def test_a_column_can_have_the_splits_and_a_hold_out_takes_its_place(
    run: Run, place: Path, tmp_path: Path
) -> None:
    state = tmp_path / "prod"
    for number in (1, 2):
        pairs = pq.read_table(place / f"week-{number}.parquet")
        splits = ["test" if row % 4 == 0 else "train" for row in range(len(pairs))]
        pq.write_table(pairs.append_column("part", [splits]), tmp_path / f"week-{number}.parquet")
    words = [*first_words(place, state), *PASSES, "--split-column", "part"]
    words[1] = tmp_path / "week-1.parquet"
    del words[words.index("--holdout") : words.index("--holdout") + 2]
    del words[words.index("--buffer-from") : words.index("--buffer-from") + 2]
    done = run(*words)
    assert (done.code, f"{state} starts without --buffer-from" in done.err) == (0, True)
    task = state / "weeks" / "0001" / "stream" / "00-week-0001" / "task.json"
    splits = json.loads(task.read_text())["splits"]
    assert {name: one["images"] for name, one in splits.items()} == {"train": 18, "test": 6}
    assert "splits of column part" in run("inspect", state).out
    week = ["update", tmp_path / "week-2.parquet", "--state", state]
    both = run(*week, "--split-column", "part", "--holdout", "test=0.5")
    check_refused(both, "update", 2, "leave out --holdout")
    lines = run(*week, "--holdout", "test=0.5", "--dry-run").out
    assert "--holdout test=0.5" in lines
    assert "--split-column" not in lines
    # Weeks without the column go on, and so does any other setting that was given once.
    lines = run(*week, "--split-column", "none", "--steps", "none", "--dry-run").out
    assert "--holdout test=0.1" in lines
    assert "--split-column" not in lines
    assert "--steps" not in lines


@pytest.mark.slow
def test_columns_that_the_state_remembers_are_named_with_what_takes_them_back(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    table, third = (pq.read_table(place / f"week-{number}.parquet") for number in (2, 3))
    names = {"image": "image_file", "caption": "alt_text"}
    pq.write_table(table.rename_columns(names), tmp_path / "two.parquet")
    pq.write_table(third.drop_columns(["customer"]), tmp_path / "three.parquet")
    words = ("update", tmp_path / "three.parquet", "--state", state)
    columns = ("--image-column", "image_file", "--caption-column", "alt_text")
    how = (*columns, "--keep-columns", "customer", "-q")
    assert run("update", tmp_path / "two.parquet", "--state", state, *how).code == 0
    usual, kept = "--image-column none --caption-column none", "--keep-columns none"
    for dry in ((), ("--dry-run",)):
        check_refused(run(*words, *dry), "update", 3, "since week 2", f"add {usual} {kept}")
    check_refused(run(*words, *usual.split()), "update", 3, f"add {kept}")
    given = run(*words, "--image-column", "img", "--caption-column", "none")
    check_refused(given, "update", 3, "unknown column 'img'")
    assert "none" not in given.err
    assert run(*words, *usual.split(), *kept.split(), "--dry-run").code == 0


def test_inspect_shows_weeks_and_the_rejected_attempt(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    shown = run("inspect", state)
    assert f"current: {state}/weeks/0001/checkpoint" in shown.out
    assert "own_final.rm" in shown.out
    assert f"pending: week 2, rejected: {state}/pending" in shown.out
    facts = json.loads(run("inspect", state, "--json").out)
    assert (facts["kind"], facts["week"], len(facts["weeks"])) == ("state", 1, 1)
    assert facts["weeks"][0]["pairs"] == 24
    assert facts["pending"]["outcome"] == "rejected"
    assert facts["pending"]["verdicts"][0]["holds"] is True


@pytest.mark.parametrize("is_same", [True, False])
def test_a_rejected_week_is_evaluated_again_only_on_other_guards(
    place: Path, state: Path, is_same: bool
) -> None:
    attempt = Attempt.read(state / "weeks" / "0001")
    pending = state / "pending"
    shutil.copytree(state / "weeks" / "0001", pending)
    guards = (
        attempt.settings.guards if is_same else find_guards(state, [place / "silver/00-silver"])
    )
    settings = replace(attempt.settings, guards=guards)
    with Layout(state).locked():
        wanted = replace(attempt, settings=settings)
        now = read_state(Layout(state))
        _, is_made = _continue(Layout(state), now, wanted, lambda _: None, force=False)
    assert is_made == is_same
    assert ((pending / "rows").exists(), (pending / "ranks").exists()) == (is_same, is_same)
    assert not (pending / "report").exists()
    assert not (pending / "verdict.json").exists()
    assert (pending / "checkpoint").exists()
    assert Attempt.read(pending).settings == settings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "vlcpctl.state/2"}, "this version reads vlcpctl.state/1"),
        ({"weeks": []}, "has changed since it was written"),
        ({"schema": 7}, "has schema 7"),
    ],
)
def test_a_state_that_was_changed_is_refused(
    run: Run, place: Path, state: Path, change: dict[str, object], said: str
) -> None:
    file = state / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    before = tree(state)
    check_refused(run(*week_words(place, state, 2)), "update", 3, "state.json", said)
    check_refused(run("inspect", state), "inspect", 3, said)
    check_refused(run("update", "--state", state, "--rollback", "0"), "update", 3, said)
    assert tree(state) == before
    file.write_text("[" * 500)
    check_refused(run(*week_words(place, state, 2)), "update", 3, "state.json")


@pytest.mark.parametrize(
    "field",
    [
        *("rehearsal", "settings.rehearsal", "start.rehearsal", "start.settings.rehearsal"),
        *("weeks.0.rehearsal", "settings.guards.0.rehearsal"),
    ],
)
def test_a_state_of_a_later_version_is_refused_and_kept(
    run: Run, place: Path, state: Path, field: str
) -> None:
    _add_field(state / "state.json", STATE, field)
    before = tree(state)
    said = "state.json was written by a later version of vlcpctl: it has the field 'rehearsal'"
    for words in (week_words(place, state, 2), ["update", "--state", state, "--rollback", "0"]):
        check_refused(run(*words), "update", 3, said, "use that version")
    check_refused(run("inspect", state), "inspect", 3, said)
    assert tree(state) == before


def test_a_week_of_a_later_version_is_not_judged_again(run: Run, place: Path, state: Path) -> None:
    shutil.copytree(state / "weeks" / "0001", state / "pending")
    for name, schema in (("verdict.json", VERDICT), ("week.json", WEEK)):
        _add_field(state / "pending" / name, schema, "rehearsal")
        before = tree(state)
        refused = run(*week_words(place, state, 2))
        check_refused(refused, "update", 3, f"{name} was written by a later version")
        assert tree(state) == before


def _add_field(file: Path, schema: str, name: str) -> None:
    """Add a field that this version does not know to a record; `a.0.b` is in the list `a`."""
    found = json.loads(file.read_text())
    *above, last = name.split(".")
    inner = found
    for one in above:
        inner = inner[int(one)] if one.isdigit() else inner[one]
    inner[last] = True
    body = {name: one for name, one in found.items() if name not in {"schema", "seal", "made_by"}}
    write_record(file, schema, body)


def test_workers_are_kept_until_auto_takes_their_place(tmp_path: Path) -> None:
    first = Settings(run="r").with_given(_settings(tmp_path, {"workers": "4"}))
    later = first.with_given(_settings(tmp_path, {"steps": 3}))
    assert (first.workers, later.workers) == (4, 4)
    assert later.with_given(_settings(tmp_path, {"workers": "auto"})).workers is None
    assert Settings(run="r").workers is None
