"""Real weeks of a tiny model: accepted, rejected, made again, rolled back, kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import exit_code_of, run_line, start_child
from support.production import (
    FAILS,
    PASSES,
    actions,
    events,
    first_words,
    tree,
    week,
    week_words,
)
from support.program import ProgramResult, check_refused

from vlcpctl.production.check import check_state
from vlcpctl.production.state import State

Run = Callable[..., ProgramResult]


def settings_of(state: Path) -> str:
    return (state / "update.toml").read_text()


def test_a_week_is_accepted_and_the_link_names_its_checkpoint(
    real: Run, place: Path, state: Path
) -> None:
    how = ("--lr", "0.002", "--set", "update.index-week=0")
    done = real(*week_words(place, state, 2), "-q", *how)
    assert (done.code, done.out) == (0, f"{state}/attempts/0003/draw-0/checkpoint\n")
    assert (state / "current").readlink() == Path("attempts/0003/draw-0/checkpoint")
    assert actions(state) == ["started", "start", "started", "accepted", "started", "accepted"]
    assert "lr = 0.002\n" in settings_of(state)
    files = week(state, 2).parent.rglob("*.ndjson")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    usual = [row for row in rows if "gallery_checkpoint" not in row]
    assert len(rows) - len(usual) == 4  # on the index of the start: kept, grown and built again
    # The new checkpoint on both weeks; the start and the last one on the new week, once.
    assert sorted(((row["run"], row["step"], row["task"]) for row in usual), key=str) == [
        ("prod", 0, "00-week-0002"),
        ("prod", 1, "00-golden"),
        ("prod", 1, "00-week-0001"),
        ("prod", 1, "01-week-0002"),
        ("trained", None, "00-week-0002"),
    ]
    assert list(check_state(state, deep=True)) == []
    before = tree(state)
    again = real(*week_words(place, state, 2), "--init", place / "model")
    assert (again.code, again.out, tree(state)) == (0, done.out, before)
    check_refused(real(*week_words(place, state, 2), "--lr", "0.5"), "update", 4, "--lr")
    shown = real("inspect", state).out
    assert "week 2" in shown
    assert "lr is now 0.002" in " ".join(shown.split())
    (parent, *_) = json.loads(real("inspect", state / "current", "--json").out)["parents"]
    assert parent.get("kind") == "checkpoint"


def test_a_rejected_week_changes_nothing_and_is_judged_again_without_training(
    run: Run, place: Path, state: Path
) -> None:
    link, toml, before = (state / "current").readlink(), settings_of(state), actions(state)
    for _ in range(2):
        done = run(*week_words(place, state, 2), *FAILS, "--steps", "2", "-q")
        assert (done.code, done.out) == (7, "")
        said = done.err.splitlines()
        said = said[said.index("week 2 is rejected:") :]
        assert not any(len(one) > 80 for one in said if str(state) not in one)
        assert actions(state) == [*before, "started", "rejected"]
        assert ((state / "current").readlink(), settings_of(state)) == (link, toml)
    inode = (state / "attempts/0003/draw-0/checkpoint/checkpoint.json").stat().st_ino
    done = run(*week_words(place, state, 2), *PASSES, "--steps", "2", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["week"], found["accepted"], found["attempt"]) == (2, True, 3)
    assert (week(state, 2) / "checkpoint/checkpoint.json").stat().st_ino == inode
    assert "steps = 2\n" in settings_of(state)


def test_a_week_is_rejected_by_its_match_and_not_trained_again(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    gate = ("--fail-if", "week_match:ge:0", "--set", "update.retries=1")
    done = run(*week_words(place, state, 2), *gate, "--junit", tmp_path / "j.xml", "-q")
    assert done.code == 7, done.err
    made = State.read(state).attempts[3]
    assert made.match is not None
    assert made.learned is not None
    assert made.match.images == made.learned.images == 6
    assert (made.draw, [one["value"] for one in made.verdicts]) == (0, [made.match.value])
    assert "week_match" in (tmp_path / "j.xml").read_text()
    assert str(made.match) in (state / "attempts/0003/draw-0/report/week.html").read_text()
    assert run(*week_words(place, state, 2), *PASSES, "-q").code == 0
    assert str(made.match) in " ".join(run("inspect", state).out.split())
    # Of one test image nothing can be told: that is no week without the condition.
    few = ("--holdout", "test=2", "--set", "split.holdout-most=5%")
    unknown = run(*week_words(place, state, 3), *few, *gate, "-q")
    assert (unknown.code, "leave out that --fail-if" in unknown.err) == (3, True)


def test_rows_of_a_rejected_week_are_in_no_later_report(run: Run, place: Path, state: Path) -> None:
    assert run(*week_words(place, state, 2), *FAILS, "-q").code == 7
    rejected = State.read(state).attempts[3].checkpoint
    done = run(*week_words(place, state, 3), "--on-accept", "exit 3", "-q")
    assert done.code == 9
    texts = [x.read_text() for x in week(state, 2).rglob("*") if x.suffix in {".csv", ".md"}]
    assert not any(rejected in text for text in texts)
    assert not (state / "attempts/0003/draw-0/checkpoint").exists()
    # The hook runs again until it has succeeded, and in it the state is locked.
    locked = f"vlcpctl update --state {state} --rollback 0"
    assert run(*week_words(place, state, 3), "--on-accept", f"! {locked} 2>&1").code == 0
    assert run(*week_words(place, state, 3), "--on-accept", "exit 3").code == 0
    assert [one.get("exit_code") for one in events(state) if one["action"] == "hook"] == [3, 0]


def test_an_unclear_loss_is_trained_again_and_the_mean_of_both_is_judged(
    run: Run, place: Path, state: Path
) -> None:
    gate = (*FAILS, "--set", "update.retries=1")
    assert run(*week_words(place, state, 2), *gate, "-q").code == 7
    made = State.read(state).attempts[3]
    assert (made.draw, len(made.lost), made.status) == (1, 1, "rejected")
    texts = [(state / f"attempts/0003/draw-{n}/rows/weeks.ndjson").read_text() for n in (0, 1)]
    both = [[json.loads(line) for line in text.splitlines()] for text in texts]
    rows = [of_draw[0] for of_draw in both]
    assert rows[0]["checkpoint"] != rows[1]["checkpoint"]
    means = [sum(row["metrics"]["rm"] for row in of_draw) / 2 for of_draw in both]
    assert made.lost[0][0]["value"] == pytest.approx(means[0])
    assert made.verdicts[0]["value"] == pytest.approx(sum(means) / 2)
    left = state / "attempts/0003/draw-1/.second.ndjson.tmp-0"  # by a kill
    left.touch()
    assert run(*week_words(place, state, 2), *PASSES, "--set", "update.retries=1", "-q").code == 0
    assert (State.read(state).attempts[3].draw, left.exists()) == (1, False)
    assert run(*week_words(place, state, 3), "-q").code == 0
    assert not (state / "attempts/0003/draw-0/checkpoint").exists()
    lost = rows[0]["checkpoint"]
    assert lost not in (week(state, 3) / "report/facts.csv").read_text()


def test_two_trainings_are_judged_alike_after_guards_and_galleries_have_changed(
    run: Run, place: Path, state: Path
) -> None:
    silver = place / "silver" / "00-silver"
    fails = (*week_words(place, state, 2), *FAILS, "--set", "update.retries=1", "-q")
    assert run(*fails).code == 7
    # The first training has no rows on another guard: both are evaluated again.
    assert run(*fails, "--guard", silver).code == 7
    assert run(*week_words(place, state, 2), "-q", "--distractors", silver).code == 0
    # Rows in the galleries of before are in the report of neither seed.
    done = run(*week_words(place, state, 3), *FAILS, "--set", "update.retries=1", "-q")
    assert done.code == 7, done.err
    assert State.read(state).attempts[4].draw == 1


def test_each_guard_is_given_again_by_its_own_option(run: Run, place: Path, state: Path) -> None:
    other = place / "silver" / "00-silver"
    given = (*week_words(place, state, 2), "-q", "--distractors", other)
    golden, kept = place / "golden" / "00-golden", place / "kept"
    golden.rename(kept)
    try:
        shutil.copytree(other, golden)
        check_refused(run(*given), "update", 3, "--guard")
        assert run(*given, "--guard", golden).code == 0
    finally:
        shutil.rmtree(golden)
        kept.rename(golden)


def test_what_a_week_publishes_is_published_again_when_it_is_the_last_one_again(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    hook = ("-q", "--on-accept", f"echo $VLCPCTL_WEEK >> {tmp_path / 'published'}")
    assert run(*week_words(place, state, 2), *hook).code == 0
    toml = state / "update.toml"
    toml.write_text(settings_of(state).replace("steps = 3", "steps = 9"))
    assert run("update", "--state", state, "--rollback", "1").code == 0
    assert "steps = 3\n" in settings_of(state)  # as that week had it, not as the file did
    assert run(*week_words(place, state, 1), *hook).code == 0
    assert run("update", "--state", state, "--redo", "2", "--keep", "1", *hook).code == 0
    assert (tmp_path / "published").read_text().split() == ["2", "1", "2"]
    assert not (week(state, 1) / "checkpoint").exists()  # by the settings of this call


def test_roll_back_redo_and_the_same_data_again(run: Run, place: Path, state: Path) -> None:
    for number in (2, 3):
        assert run(*week_words(place, state, number), "-q", "--steps", "2").code == 0
    head, toml = State.read(state).counting, settings_of(state)
    done = run("update", "--state", state, "--rollback", "1")
    assert (done.code, done.out) == (0, f"{state}/attempts/0002/draw-0/checkpoint\n")
    assert "steps = 3\n" in settings_of(state)
    check_refused(run(*week_words(place, state, 2)), "update", 4, "--reason")
    check_refused(run("update", "--state", state, "--redo", "7"), "update", 2)
    # With the settings of then, the weeks are those that they were: nothing is trained.
    done = run("update", "--state", state, "--redo", "2", "--steps", "2")
    assert done.code == 0, done.err
    assert "train-step" not in done.err
    assert (State.read(state).counting, settings_of(state)) == (head, toml)
    # With others they are made again, from their pairs and splits.
    done = run("update", "--state", state, "--redo", "2", "--steps", "4", "-q")
    assert done.code == 0, done.err
    new = State.read(state)
    assert new.counting[:2] == head[:2]
    assert not {*new.counting[2:]} & {*head[2:]}
    for was, now in zip(head[2:], new.counting[2:], strict=True):
        pairs = [new.task(new.attempts[one]) / "task.json" for one in (was, now)]
        assert len({json.loads(path.read_text())["content"] for path in pairs}) == 1
    assert run("forgetting-report", state, "-q").code == 0  # rows of the head alone go together
    assert list(check_state(state, deep=False)) == []


def test_a_redo_that_is_rejected_replaces_nothing(run: Run, place: Path, state: Path) -> None:
    head = State.read(state).counting
    words = ["update", "--state", state, "--redo", "1", "--steps", "2", "-q"]
    assert run(*words, *FAILS).code == 7
    assert State.read(state).counting == head
    assert run(*words, *PASSES).code == 0
    assert State.read(state).counting != head


def test_keep_removes_weights_and_pairs_and_their_keys_are_known(
    run: Run, place: Path, state: Path
) -> None:
    for number in (2, 3):
        assert run(*week_words(place, state, number), "-q", "--keep", "1").code == 0
    places = [week(state, number) for number in (1, 2, 3)]
    assert [(one / "checkpoint").exists() for one in places] == [False, False, True]
    assert [(one.parent / "trimmed.parquet").exists() for one in places] == [True, True, False]
    check_refused(run("update", "--state", state, "--rollback", "1"), "update", 2, "--keep")
    redo = ("update", "--state", state, "--redo", "2")
    assert run(*redo).code == 0  # it is made so already
    check_refused(run(*redo, "--steps", "2"), "update", 2, "--keep")
    renamed = state.parent / "again.parquet"
    shutil.copyfile(place / "week-1.parquet", renamed)
    assert run("update", renamed, "--state", state).code == 0  # accepted before
    assert list(check_state(state, deep=True)) == []
    assert run("update", "--state", state, "--rollback", "0").code == 0


def test_redo_does_not_skip_a_trimmed_week_after_that_of_the_index(
    run: Run, place: Path, state: Path
) -> None:
    keep = ("-q", "--keep", "1", "--set", "update.index-week=1")
    for number in (2, 3):
        assert run(*week_words(place, state, number), *keep).code == 0
    head = State.read(state).counting
    redo = ("update", "--state", state, "--redo", "1", "--steps", "2", "-q")
    check_refused(run(*redo, "--set", "update.index-week=0"), "update", 2, "--keep")
    assert State.read(state).counting == head


@pytest.mark.slow
def test_six_weeks_end_as_single_weeks_and_a_second_update_is_refused(
    real: Run, place: Path, tmp_path: Path
) -> None:
    state = tmp_path / "prod"
    assert real(*first_words(place, state), *PASSES).code == 0
    for number in range(2, 4):
        lines = [week_words(place, state, number), week_words(place, state, number)]
        logs = [tmp_path / f"log-{one}" for one in range(2)]
        pids = [
            start_child(lambda _rank, line=line, log=log: run_line([*line, "-q"], log))
            for line, log in zip(lines, logs, strict=True)
        ]
        assert sorted(map(exit_code_of, pids)) in ([0, 4], [0, 0])
    for number in range(4, 7):
        assert real(*week_words(place, state, number), "-q").code == 0
    found = State.read(state)
    assert [one.week for one in found.head()] == list(range(7))
    assert list(check_state(state, deep=True)) == []
    summary = json.loads((week(state, 6) / "report/summary.json").read_text())
    assert summary["verdicts"]


def test_nothing_new_makes_no_week(run: Run, place: Path, state: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(place / "week-1.parquet")
    pq.write_table(table.slice(0, 9), tmp_path / "part.parquet")
    before = State.read(state).counting
    done = run("update", tmp_path / "part.parquet", "--state", state)
    assert (done.code, done.out) == (0, f"{state}/attempts/0002/draw-0/checkpoint\n")
    assert State.read(state).counting == before
    again = run("update", tmp_path / "part.parquet", "--state", state, "--lr", "1")
    check_refused(again, "update", 4, "--lr")
