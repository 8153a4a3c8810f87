"""Deletion requests in a state directory: nothing of the pairs is left, and updates go on."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.processes import exit_code_of, killed_before, run_line, start_child
from support.production import (
    PASSES,
    bodies,
    customer_of,
    first_words,
    make_place,
    tree,
    week_words,
)
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.core.console import set_quiet
from vlcpctl.core.errors import OutputExists
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion import request as requests
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.files.manifest import read_manifest
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
        assert run(*words, "--holdout", "test=0.3", "-q").code == 0
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
        for name in task.manifest.splits:
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
    return [one for one in found if not one.startswith(("receipts/", "deleted/"))]


def data_traces(state: Path, wanted: list[bytes]) -> list[str]:
    """Traces, but for those of the guard in its ranks: a guard is not part of the state."""
    of_guard = ("/ranks/guards", "/ranks/index", "embeddings/")
    return [one for one in traces(state, wanted) if not any(part in one for part in of_guard)]


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
    redo = f"'vlcpctl update --state {state} --redo 1' trains them again without these"
    assert f"the models from week 1 on have learned deleted pairs; {redo}" in done.err
    assert "not searched" not in done.err, "'current' leads to what was searched"
    assert traces(state, wanted) == []
    shutil.copytree(state, state.parent / "before", symlinks=True)
    assert run("update", "--state", state, "--redo", 1, *PASSES, "-q").code == 0
    again = run(*words)
    assert (again.code, "have learned" in again.err) == (0, False), again.err
    shutil.rmtree(state)
    (state.parent / "before").rename(state)
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
    assert data_traces(state, wanted) == []
    for number in (1, 2, 4):
        assert "is already accepted as week" in run(*week_words(place, state, number)).err
    # Without its pairs in the guard, too, whose rows of the start are from before.
    assert run(*words, place / "guard", "-q").code == 0
    assert traces(place / "guard", wanted) == []
    done = run(*week_words(place, state, 5), "-q")
    assert done.code == 0, done.err
    summary = json.loads((state / "weeks/0004/report/summary.json").read_text())
    assert [one["value"] is not None for one in summary["verdicts"]] == [True, True]
    notes = " ".join(summary["notes"])
    assert "were evaluated before 'vlcpctl forget' removed pairs" in notes
    assert "removed queries from the ranks" in notes
    shown = run("inspect", state)
    assert (shown.code, "weeks/0004/checkpoint" in shown.out) == (0, True)
    assert run("update", "--state", state, "--rollback", "1", "-q").code == 0
    guard = ["--guard", place / "guard" / "00-guard", "--small-guard"]
    again = run(*week_words(place, state, 3), *guard, "-q")
    assert again.code == 0, again.err
    assert run(*words, place / "guard", "-q").code == 0
    assert [one for part in parts(state) for one in check(part, deep=True)] == []


def encoded_again(table: pa.Table) -> pa.Table:
    """The pairs with the same pictures in other bytes, so that their keys differ."""

    def encoded(data: bytes) -> bytes:
        out = io.BytesIO()
        Image.open(io.BytesIO(data)).save(out, "PNG", compress_level=1)
        return out.getvalue()

    images = [encoded(data) for data in table["image"].to_pylist()]
    assert not set(images) & set(table["image"].to_pylist())
    return table.set_column(table.column_names.index("image"), "image", [images])


def of_customer(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["customer"], CUSTOMER))


def customers_in(state: Path, week: int) -> set[str]:
    """The customers of the pairs of a week and of its buffer."""
    directory = state / f"weeks/{week:04d}"
    tasks = [open_task(directory / one) for one in (f"stream/00-week-{week:04d}", "buffer")]
    splits = [task.split(name) for task in tasks for name in task.manifest.splits]
    return {one for split in splits for values in split.column("customer") for one in values}


def test_deleted_and_known_pairs_are_not_in_a_later_week(
    run: Run, place: Path, state: Path
) -> None:
    wanted = needles([state, place / "guard"])
    assert run("forget", "--where", f"customer={CUSTOMER}", state, "-q").code == 0
    assert run("update", "--state", state, "--rollback", "1", "-q").code == 0
    # The same week again, with copies in other bytes, and with pairs that week 1 has.
    first, second = (pq.read_table(place / f"week-{number}.parquet") for number in (1, 2))
    copies = encoded_again(of_customer(first))
    pq.write_table(pa.concat_tables([first[:12], copies, second]), place / "again.parquet")
    words = ["update", place / "again.parquet", "--state", state]
    done = run(*words, "--json")
    assert done.code == 0, done.err
    assert f"{state}: week 2: of 40 pairs, 10 are known from week 1 and left out, and 10 were" in (
        done.err
    )
    assert CUSTOMER not in customers_in(state, 2)
    assert data_traces(state, wanted) == []
    (deletion,) = (path.stem for path in (state / "deleted").iterdir())
    left_out = {"deleted": {deletion: 10}, "known": {"week-0001": 10}}
    assert json.loads(done.out)["left_out"] == left_out
    recorded = json.loads((state / "state.json").read_text())["weeks"]
    assert [week["left_out"] for week in recorded] == [{}, left_out]
    assert [week["pairs"] for week in recorded] == [24, 20]
    assert len(json.loads((state / "weeks/0002/week.json").read_text())["deleted"]) == 1
    assert f"left out from now on: 20 deleted pairs ({state}/deleted)" in run("inspect", state).out


@pytest.mark.slow
def test_readmitted_and_known_pairs_are_trained_on_if_that_is_asked_for(
    run: Run, place: Path, state: Path
) -> None:
    assert run("forget", "--where", f"customer={CUSTOMER}", state, "-q").code == 0
    assert run("update", "--state", state, "--rollback", "1", "-q").code == 0
    receipt = state / "receipts/0001.json"
    pair_of_week_1 = pq.read_table(place / "week-1.parquet")[:6]
    both = pa.concat_tables([pair_of_week_1, pq.read_table(place / "week-2.parquet")])
    pq.write_table(both, place / "again.parquet")
    words = ["update", place / "again.parquet", "--state", state, "--readmit", receipt]
    done = run(*words, "--known", "train")
    assert done.code == 0, done.err
    assert "of 30 pairs, 5 are known from week 1 and trained on again" in done.err
    assert CUSTOMER in customers_in(state, 2)
    recorded = json.loads((state / "weeks/0002/week.json").read_text())
    assert recorded["readmitted"] == [json.loads(receipt.read_text())["request"]]
    forgotten, _, _, taken_in, _ = bodies(state)[-5:]
    assert (forgotten["action"], taken_in["action"]) == ("forgotten", "readmitted")
    assert forgotten["deletions"] == taken_in["deletions"] == recorded["readmitted"]
    assert "already accepted as week 2" in run(*words).err
    # It is for this week only, as the deletion still holds.
    dry = run(*week_words(place, state, 3), "--dry-run")
    assert f"--not {state}/deleted/" in dry.out
    assert "00-week-0001" not in dry.out.splitlines()[1], "--known is kept"


def test_readmit_and_known_decide_what_the_split_leaves_out(
    run: Run, place: Path, state: Path
) -> None:
    assert run("forget", "--where", f"customer={CUSTOMER}", state, "-q").code == 0
    (stop_list,) = (state / "deleted").iterdir()
    words = [*week_words(place, state, 3), "--dry-run"]
    weeks = [f"--not {state}/weeks/{week:04d}/stream/00-week-{week:04d}" for week in (1, 2)]

    def split(*more: object) -> str:
        return run(*words, *more).out.splitlines()[1]

    assert f" --not {stop_list} {' '.join(weeks)}" in split()
    assert f" --not {stop_list}" in split("--known", "train")
    assert split("--known", "skip") == split()
    assert "week-0001/" not in split("--known", "train")
    assert str(stop_list) not in split("--readmit", state / "receipts/0001.json")
    assert str(stop_list) not in split("--readmit", stop_list)
    foreign = state / "foreign.json"
    foreign.write_text(json.dumps({**json.loads(stop_list.read_text()), "request": "f" * 32}))
    check_refused(run(*words, "--readmit", foreign, "-q"), "update", 3, "has changed since")
    check_refused(run(*words, "--known", "sometimes", "-q"), "update", 2, "takes skip or train")


def test_a_rejected_week_of_deleted_pairs_is_made_again(run: Run, place: Path, state: Path) -> None:
    wanted = needles([state, place / "guard"])
    before = json.loads((state / "pending/checkpoint/checkpoint.json").read_text())
    assert run("forget", "--where", f"customer={CUSTOMER}", state, "-q").code == 0
    done = run(*week_words(place, state, 4), *GATES)
    assert done.code == 0, done.err
    assert "week 3 is made again from its start: pairs were deleted" in done.err
    made = json.loads((state / "weeks/0003/checkpoint/checkpoint.json").read_text())
    assert before["tasks"][-1] not in made["tasks"]
    assert made["content"] != before["content"]
    assert data_traces(state, wanted) == []


def test_no_week_is_made_of_known_pairs(run: Run, place: Path, state: Path, tmp_path: Path) -> None:
    """Another compression makes another file, whose pairs are those of week 1."""
    source, junit = tmp_path / "again.parquet", tmp_path / "gates.xml"
    pq.write_table(pq.read_table(place / "week-1.parquet"), source, compression="zstd")
    before = tree(state)
    words = ["update", source, "--state", state]
    said = "of 24 pairs, 24 are known from week 1 and left out: nothing is new, and no week is made"
    done = run(*words, "--junit", junit)
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n")
    assert f"{state}: {said}\n" in done.err
    assert "<testcase" not in junit.read_text()
    assert run(*words, "--dry-run").out == f"# {said}\n"
    found = json.loads(run(*words, "--json", "-q").out)
    assert (found["week"], found["left_out"]) == (2, {"known": {"week-0001": 24}})
    refused = run(*words, "--lr", "0.5", "--undefined", "error", "--fresh-state", "-q")
    check_refused(refused, "update", 4, "so that --fresh-state, --lr, --undefined would not be")
    assert tree(state) == before
    # A column that is lacking is named by the split.
    pq.write_table(pq.read_table(source).drop_columns("customer"), source)
    assert "customer" in run(*words, "-q").err


@pytest.mark.slow
def test_pairs_that_are_deleted_while_a_week_is_made_are_not_accepted(
    place: Path, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from vlcpctl.commands.update import _locked
    from vlcpctl.data.splitting.leaving_out import add_to_stop_list, stop_list_path
    from vlcpctl.production.lines import Call
    from vlcpctl.production.update import UpdateRequest, run_lines, update

    def observe(point: str) -> None:
        if point == "judged":
            add_to_stop_list(stop_list_path(state, "0" * 32), "0" * 32, [], ["1" * 32])

    set_quiet(False)  # as the command line before it did not leave it
    call = Call(data=[str(place / "week-4.parquet")], quiet=True)
    request = UpdateRequest(state=state, call=call, given={"fail_if": ("rm:lt:0",)})
    with _locked(state):
        with pytest.raises(OutputExists, match="pairs were deleted while week 3 was made"):
            update(request, run_lines, observe)
        assert not (state / "weeks/0003").exists()
        assert update(request, run_lines).number == 3
    assert "week 3 is made again from its start" in capfd.readouterr().err


def test_a_damaged_stop_list_is_refused(run: Run, place: Path, state: Path) -> None:
    words = ["forget", "--where", f"customer={CUSTOMER}", state, "-q"]
    assert run(*words).code == 0
    (path,) = (state / "deleted").iterdir()
    text = path.read_text()
    path.write_text(json.dumps({**json.loads(text), "keys": []}))
    for command in (week_words(place, state, 5), [*words, "--ticket", "x"]):
        refused = run(*command, "-q")
        check_refused(refused, command[0], 3, path, "has changed", "restore it from a backup")
    assert [one.name for one in (state / "receipts").iterdir()] == ["0001.json"]
    path.write_text(text)
    assert run(*words, "--ticket", "x").code == 0


@pytest.mark.parametrize("change", ["/deleted/", "/ranks/before.parquet"])
def test_a_killed_deletion_leaves_no_week_that_takes_its_pairs(
    change: str, run: Run, place: Path, state: Path
) -> None:
    words = ["forget", "--where", f"customer={CUSTOMER}", state, "-q"]
    request = DeletionRequest(conditions=parse(where=[f"customer={CUSTOMER}"]), paths=[state])
    assert killed_before(change, lambda: forget(request))
    refused = run(*week_words(place, state, 5), "--dry-run")
    check_refused(refused, "update", 4, "has not finished; run its 'vlcpctl forget' again")
    assert run(*words).code == 0
    listed = json.loads((state / "receipts/0001.json").read_text())
    (stop_list,) = (state / "deleted").iterdir()
    assert json.loads(stop_list.read_text())["keys"] == listed["keys"]
    assert len(listed["keys"]) > 8
    assert listed["stop_lists"] == [str(stop_list)]
    assert not list(state.rglob(".*"))
    assert run(*week_words(place, state, 5), "--dry-run").code == 0


@pytest.mark.slow
def test_no_week_is_trained_during_a_deletion(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    words = ["forget", "--where", f"customer={CUSTOMER}", state, "-q"]

    def killed_after_its_receipt(_rank: int) -> None:
        requests.remove = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
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
    assert task["id"] == read_manifest(state / "weeks/0001/stream" / task["path"], "task")["id"]


def test_a_week_without_test_pairs_is_left_out(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    """Conditions on forgetting go on, over the weeks that have test pairs."""
    tests = open_task(state / "weeks/0001/stream/00-week-0001").split("test")
    listed = tmp_path / "keys"
    listed.write_text("\n".join(tests.keys))
    assert run("forget", "--keys", listed, state, "-q").code == 0
    done = run(*week_words(place, state, 5), "--fail-if", "bwt_gem:lt:-200", "-q")
    assert done.code == 0, done.err
    assert "has removed all test pairs of week 1: metrics over all weeks" in done.err
    rows = (state / "weeks/0003/rows/weeks.ndjson").read_text()
    assert [json.loads(row)["task"] for row in rows.splitlines()] == [
        *("01-week-0002", "02-week-0003")
    ]
    summary = json.loads((state / "weeks/0003/report/summary.json").read_text())
    scores = {}
    for week in (2, 3):
        text = (state / f"weeks/{week:04d}/rows/weeks.ndjson").read_text()
        for row in map(json.loads, text.splitlines()):
            scores[week, row["task"]] = row["metrics"]["rm"]
    change = scores[3, "01-week-0002"] - scores[2, "01-week-0002"]
    (gate,) = summary["verdicts"]
    assert gate["value"] == pytest.approx(change, abs=1e-6)
    assert any("evaluated on 00-week-0001: metrics" in note for note in summary["notes"])
