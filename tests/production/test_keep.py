"""`update --keep N`: old weeks lose weights, buffer and pairs for training, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.processes import killed_before
from support.production import PASSES, bodies, first_words, killed_at, tree, week_words, write_week
from support.program import ProgramResult, check_refused

from vlcpctl.data.splitting.leaving_out import read_known
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.inspection.check import check
from vlcpctl.production.keeping import _too_old
from vlcpctl.production.layout import Layout
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]
_POINTS = ("accepted", "marked 1", "rewritten 1", "without buffer 1", "without checkpoint 1")


def test_an_old_week_keeps_what_is_evaluated_and_its_keys(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    before = open_task(state / "weeks/0001/stream/00-week-0001")
    keys = {key for name in before.manifest.splits for key in before.split(name).keys}
    tests = before.split("test")
    done = run(*week_words(place, state, 2), *PASSES, "--keep", "1")
    said = f"{state}: week 1 has no weights, buffer and pairs for training any more (--keep 1)"
    assert (done.code, said in done.err) == (0, True)
    week = state / "weeks/0001"
    assert not (week / "checkpoint").exists()
    assert not (week / "buffer").exists()
    after = open_task(week / "stream/00-week-0001")
    assert after.counts == {"train": 0, "test": len(tests)}
    assert after.split("test").keys == tests.keys
    assert list(check(week / "stream", deep=True)) == []
    known = read_known(week / "trimmed.parquet")
    assert (known.name, set(known.keys)) == ("week-0001", keys)
    # Its pairs are still known, and what needs its weights says why it cannot have them.
    both = [pq.read_table(place / f"week-{number}.parquet") for number in (1, 3)]
    pq.write_table(pa.concat_tables(both), tmp_path / "both.parquet")
    dry = run("update", tmp_path / "both.parquet", "--state", state, "--dry-run")
    assert f"--not {week}/trimmed.parquet" in dry.out
    assert "24 are known from week 1" in dry.out
    for words in (["--rollback", "1"], ["--redo", "1"]):
        refused = run("update", "--state", state, *words)
        check_refused(refused, "update", 2, "--keep has removed the weights and pairs of week 1")
    # A damaged list is not half a list.
    damaged = week / "trimmed.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused = run("update", tmp_path / "both.parquet", "--state", state)
    assert (refused.code, f"{damaged}" in refused.err) == (3, True)


@pytest.mark.parametrize("by", ["key", "sha256", "where"])
def test_a_deletion_finds_what_only_a_trimmed_week_knows(by: str, run: Run, kept: Path) -> None:
    """Its pairs are gone, but a later model has learned them."""
    trimmed = kept / "weeks/0001/trimmed.parquet"
    buffer = open_task(kept / "weeks/0003/buffer").split("train").keys
    rows = read_known(trimmed).table.to_pylist()
    gone = [one for one in rows if one["trimmed_split"] == "train" and one["key"] not in buffer]
    pair = gone[0]
    words = {"sha256": ["--sha256", pair["sha256"]]}.get(by, ["--key", pair["key"]])
    if by == "where":
        words = ["--where", f"customer={pair['customer'][0]}"]
    done = run("forget", *words, kept)
    assert done.code == 0, done.err
    assert "week 3 on have learned deleted pairs, also earlier ones" in done.err
    receipt = json.loads((kept / "receipts/0001.json").read_text())
    assert pair["key"] in receipt["keys"]
    assert [one["path"] for one in receipt["checkpoints"]] == [f"{kept}/weeks/0003/checkpoint"]
    left = read_known(trimmed)
    assert not set(left.keys) & set(receipt["keys"])
    if by == "key":
        assert len(left.keys) == len(rows) - 1
    assert run("forget", *words, kept).out == done.out
    assert run("check", kept, "--deep", "-q").code == 0


def test_a_killed_deletion_in_a_trimmed_week_is_completed(run: Run, kept: Path) -> None:
    trimmed = kept / "weeks/0001/trimmed.parquet"
    key = read_known(trimmed).keys[0]
    request = DeletionRequest(conditions=parse([key]), paths=[kept])
    assert killed_before(f"/0001/{trimmed.name}", lambda: forget(request))
    assert run("forget", "--key", key, kept, "-q").code == 0
    assert key not in read_known(trimmed).keys
    assert run("check", kept, "-q").code == 0


def test_a_test_pair_of_a_trimmed_week_is_in_no_lineage(run: Run, kept: Path) -> None:
    rows = read_known(kept / "weeks/0001/trimmed.parquet").table.to_pylist()
    key = next(one["key"] for one in rows if one["trimmed_split"] == "test")
    assert run("forget", "--key", key, kept, "-q").code == 0
    receipt = json.loads((kept / "receipts/0001.json").read_text())
    assert (receipt["keys"], receipt["checkpoints"]) == ([key], [])


def test_targets_of_a_week_that_was_trimmed_are_rewritten(
    run: Run, place: Path, state: Path, tmp_path: Path
) -> None:
    """The task is there, but without the pairs to make the targets of again."""
    task, targets = state / "weeks/0001/stream/00-week-0001", tmp_path / "targets"
    keys = list(open_task(task).split("train").keys)
    teacher = ("--teacher", place / "model", "--preset", "tiny")
    assert run("distill", task, *teacher, "-o", targets, "-q").code == 0
    assert run(*week_words(place, state, 2), *PASSES, "--keep", "1", "-q").code == 0
    receipt = tmp_path / "receipt.json"
    words = ("--key", keys[0], state, targets, place / "model", "--receipt", receipt, "-q")
    done = run("forget", *words)
    assert done.code == 0, done.err
    actions = {one["path"]: one["action"] for one in json.loads(receipt.read_text())["artifacts"]}
    assert actions[str(targets)] == "rewritten"
    left = pq.read_table(targets / "images.parquet")["key"].to_pylist()
    assert sorted(left) == sorted(keys[1:])


def test_the_week_of_the_index_stays_whole(state: Path) -> None:
    found = read_state(Layout(state))
    for index, old in ((0, [1, 2]), (1, [2]), (None, [1, 2])):
        settings = replace(found.settings, kept_weeks=1, index_week=index)
        weeks = tuple(replace(found.weeks[0], number=number) for number in (1, 2, 3))
        assert _too_old(replace(found, settings=settings, weeks=weeks)) == old


@pytest.mark.slow
def test_weeks_go_on_as_if_nothing_had_been_removed(run: Run, place: Path, state: Path) -> None:
    whole = state.with_name("whole")
    shutil.copytree(state, whole, symlinks=True)
    write_week(place / "week-4.parquet", 4)
    for number in (2, 3, 4):
        for root in (state, whole):
            keep = ["--keep", "1"] if root == state and number == 2 else []
            assert run(*week_words(place, root, number), *PASSES, *keep, "-q").code == 0
    weights = "weeks/0004/checkpoint/open_clip_model.safetensors"
    assert (state / weights).read_bytes() == (whole / weights).read_bytes()
    for name in ("weeks", "before", "guards"):
        one, other = (
            [json.loads(line)["metrics"] for line in file.read_text().splitlines()]
            for file in (root / "weeks/0004/rows" / f"{name}.ndjson" for root in (state, whole))
        )
        assert one == other
    report = (state / "weeks/0004/report/report.md").read_text()
    assert "were evaluated before" not in report
    place_of = Layout(state)
    assert [place_of.is_trimmed(number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    # The week of the deployed index stays whole.
    assert run(*week_words(place, state, 1)).code == 0
    assert len(list(place_of.embeddings.glob("*/*.safetensors"))) > 0
    done = run("update", "--state", state, "--redo", "4", "-q")
    check_refused(done, "update", 2, "--redo 4 continues week 3: --keep has removed the weights")


@pytest.mark.parametrize("point", _POINTS)
def test_a_killed_removal_is_completed(
    run: Run, place: Path, judged: Path, tmp_path: Path, point: str
) -> None:
    state = judged.with_name("killed")
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(judged, state, symlinks=True)
    words = [*week_words(place, state, 2), *PASSES, "--keep", "1", "-q"]
    assert killed_at(point, words, tmp_path / "log") < 0
    done = run(*words)
    assert (done.code, done.out) == (0, f"{state}/weeks/0002/checkpoint\n")
    assert sorted(path.name for path in (state / "weeks/0001").iterdir()) == [
        *("ranks", "report", "rows", "seconds.json", "stream"),
        *("trimmed.parquet", "verdict.json", "week.json"),
    ]
    assert list(check(state / "weeks/0001/stream", deep=True)) == []
    assert read_state(Layout(state)).last == 2
    assert [one["action"] for one in bodies(state)][-2:] == ["started", "accepted"]
    assert not [name for name in tree(state) if ".vlcpctl" in name]


@pytest.fixture(scope="module")
def judged(after_one: Path, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state whose second week was judged with --keep 1, but not accepted yet."""
    state = after_one.with_name("judged")
    shutil.copytree(after_one, state, symlinks=True)
    words = [*week_words(place, state, 2), *PASSES, "--keep", "1", "-q"]
    assert killed_at("judged", words, tmp_path_factory.mktemp("log") / "log") < 0
    return state


@pytest.fixture
def kept(run: Run, place: Path, tmp_path: Path) -> Path:
    """A copy of a state of three weeks of pairs with customers, of which the last is whole."""
    made = place / "kept"
    if not made.exists():
        first = [*first_words(place, made), "--keep-columns", "customer"]
        last = [*week_words(place, made, 3), "--keep", "1"]
        for words in (first, week_words(place, made, 2), last):
            assert run(*words, *PASSES).code == 0
    shutil.copytree(made, tmp_path / "prod", symlinks=True)
    return tmp_path / "prod"
