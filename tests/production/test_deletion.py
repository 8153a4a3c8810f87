"""Deletion requests in a state directory: nothing of the pairs is left, and updates go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.processes import exit_code_of, run_line, start_child
from support.production import customer_of, first_words, make_place, tree, week_words
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.core.manifest import read_manifest
from vlcpctl.data.tasks.task import open_task
from vlcpctl.inspection.check import check

Run = Callable[..., ProgramResult]

CUSTOMER = customer_of(4)
GATES = ("--fail-if", "worst_drop:gt:200", "--fail-if", "drop_low:gt:200", "--undefined", "pass")
PARTS = ("stream", "buffer", "checkpoint")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `vlcpctl WORDS` in this process."""
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weeks of pairs with customers, and a model."""
    return make_place(tmp_path_factory.mktemp("place"), 5)


@pytest.fixture
def state(place: Path, run: Run) -> Path:
    """A state after two weeks, one that was rolled back, and one that was rejected; a copy."""
    made = place / "prod"
    guard = place / "guard" / "00-guard"
    if not made.exists():
        earlier, column = place / "earlier.parquet", ("--keep-columns", "customer")
        words = ["split", earlier, "-o", guard.parent, "--by", "all:guard", *column]
        assert run(*words, "--holdout", "test=0.4", "-q").code == 0
        first = [word for word in first_words(place, made) if "golden" not in str(word)]
        first.remove("--guard")
        words = [*first, "--guard", guard, *GATES, *column, "--buffer-size", "60"]
        assert run(*words).code == 0
        for number in (2, 3):
            assert run(*week_words(place, made, number), "-q").code == 0
        assert run("update", "--state", made, "--rollback", "2", "-q").code == 0
        rejected = run(*week_words(place, made, 4), "--fail-if", "rm:ge:0", "-q")
        assert rejected.code == 7
    for name in ("prod", "guard"):
        shutil.rmtree(place / f"{name} copy", ignore_errors=True)
    # Beside the original, so that relative paths stay right; with the same hard links.
    shutil.move(made, place / "prod copy")
    copy_with_links(place / "prod copy", made)
    shutil.copytree(guard.parent, place / "guard copy")
    return made


@pytest.fixture(autouse=True)
def _restored(place: Path) -> Iterator[None]:
    yield
    for name in ("prod", "guard"):
        if (place / f"{name} copy").exists():
            shutil.rmtree(place / name, ignore_errors=True)
            (place / f"{name} copy").rename(place / name)


def copy_with_links(source: Path, target: Path) -> None:
    """Copy a directory with the hard links between its files; checkpoints are linked."""
    first: dict[int, Path] = {}
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        elif path.is_dir():
            copy.mkdir(exist_ok=True)
        elif "checkpoint" in path.parts:
            os.link(path, copy)
        elif path.stat().st_ino in first:
            os.link(first[path.stat().st_ino], copy)
        else:
            first[path.stat().st_ino] = Path(shutil.copy2(path, copy))


def needles(roots: list[Path]) -> list[bytes]:
    """Images, captions, keys and digests of all pairs of the customer."""
    found = [CUSTOMER.encode()]
    for path in sorted(one for root in roots for one in root.rglob("task.json")):
        task = open_task(path.parent)
        for name in task.manifest["splits"]:
            split = task.split(name)
            if "customer" in split.table.column_names:
                customers = split.table["customer"].to_pylist()
                for row in (row for row, one in enumerate(customers) if one == [CUSTOMER]):
                    facts = (split.column(name)[row] for name in ("key", "sha256"))
                    texts = [*split.captions(row), *map(str, facts)]
                    found += [split.image(row), *(text.encode() for text in texts)]
    assert len(found) > 40
    return found


def traces(root: Path, wanted: list[bytes]) -> list[str]:
    """The files with one of these bytes, in Parquet files also in their values."""
    found = []
    for path in sorted(one for one in root.rglob("*") if one.is_file() and not one.is_symlink()):
        data = path.read_bytes()
        values = str(pq.read_table(path).to_pylist()).encode() if data[:4] == b"PAR1" else b""
        if any(one in data or one in values for one in wanted):
            found.append(str(path.relative_to(root)))
    return [one for one in found if not one.startswith("receipts/")]


def parts(state: Path) -> list[Path]:
    """All streams, buffers and checkpoints of a state."""
    weeks = [state / "start", state / "pending", *state.glob("weeks/*"), *state.glob("rolled*/*")]
    return [week / part for week in weeks for part in PARTS if (week / part).exists()]


@pytest.mark.slow
def test_weeks_go_on_after_a_deletion(run: Run, place: Path, state: Path) -> None:
    wanted = needles([state, place / "guard"])
    words = ["forget", "--where", f"customer={CUSTOMER}", state]
    assert len(traces(state, wanted)) > 20
    linked = [path for path in (state / "start/checkpoint").iterdir() if path.stat().st_nlink > 1]
    assert linked, "the start is the user's checkpoint, which is not data"
    done = run(*words)
    assert (done.code, done.out) == (0, f"{state}/receipts/0001.json\n")
    assert "not searched" not in done.err, "'current' leads to what was searched"
    assert traces(state, wanted) == []
    assert not list(state.rglob(".*"))
    assert [one for part in parts(state) for one in check(part, deep=True)] == []
    listed = json.loads((state / "receipts/0001.json").read_text())["checkpoints"]
    made = {str(path) for path in parts(state) if path.name == "checkpoint"}
    assert {one["path"] for one in listed} == made - {str(state / "start/checkpoint")}
    # The guard still has pairs that the ranks of the start lack, and the rejected week is judged.
    for _ in range(2):
        assert run(*week_words(place, state, 4), "--fail-if", "rm:ge:0", "-q").code == 7
    accepted = run(*week_words(place, state, 4), *GATES, "-q")
    assert accepted.code == 0, accepted.err
    assert traces(state, wanted) == []
    for number in (1, 2, 4):
        assert "is already accepted as week" in run(*week_words(place, state, number)).err
    # Without its pairs in the guard, too, whose rows of the start are from before.
    assert run(*words, place / "guard", "-q").code == 0
    assert traces(place / "guard", wanted) == []
    done = run(*week_words(place, state, 5), "-q")
    assert done.code == 0, done.err
    summary = json.loads((state / "weeks/0004/report/summary.json").read_text())
    assert [one["value"] is not None for one in summary["gates"]] == [True, True]
    notes = " ".join(summary["notes"])
    assert "were evaluated before 'vlcpctl forget' removed pairs" in notes
    assert "removed queries from the ranks" in notes
    shown = run("inspect", state)
    assert (shown.code, "weeks/0004/checkpoint" in shown.out) == (0, True)
    assert run("update", "--state", state, "--rollback", "1", "-q").code == 0
    guard = ["--guard", place / "guard" / "00-guard"]
    again = run(*week_words(place, state, 3), *guard, "-q")
    assert again.code == 0, again.err
    assert run(*words, place / "guard", "-q").code == 0
    assert [one for part in parts(state) for one in check(part, deep=True)] == []


@pytest.mark.slow
def test_no_week_is_trained_during_a_deletion(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    words = ["forget", "--where", f"customer={CUSTOMER}", state, "-q"]

    def killed_after_its_receipt(_rank: int) -> None:
        from vlcpctl.deletion import removing

        removing._carry_out = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        run_line(words, tmp_path / "log")

    assert exit_code_of(start_child(killed_after_its_receipt)) == -signal.SIGKILL
    before = tree(state)
    for more in ([], ["--dry-run"]):
        refused = run(*week_words(place, state, 5), *more)
        check_refused(refused, "update", 4, state / "receipts/0001.json", "has not finished")
    assert tree(state) == before
    assert run(*words).code == 0
    assert run(*week_words(place, state, 5), "-q").code == 0
    listed = json.loads((state / "receipts/0001.json").read_text())
    assert listed["state"] == "finished"
    stream = read_manifest(state / "weeks/0001/stream", "stream")
    (task,) = stream["tasks"]
    assert stream["data_was"] == {
        task["content"]: read_manifest(state / "weeks/0001/stream" / task["path"], "task")["was"]
    }


def test_a_week_without_test_pairs_is_left_out(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    tests = open_task(state / "weeks/0001/stream/00-week-0001").split("test")
    listed = tmp_path / "keys"
    listed.write_text("\n".join(tests.keys))
    assert run("forget", "--keys", listed, state, "-q").code == 0
    done = run(*week_words(place, state, 5), "-q")
    assert done.code == 0, done.err
    assert "has removed all test pairs of week 1: metrics over all weeks" in done.err
    rows = (state / "weeks/0003/rows/weeks.ndjson").read_text()
    assert [json.loads(row)["task"] for row in rows.splitlines()] == [
        *("01-week-0002", "02-week-0003")
    ]
