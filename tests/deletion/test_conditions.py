"""`vlcpctl forget` counts what each condition selects, and the advice in its refusals helps."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.commands import buffer
from support.deletion_world import StoredPair, add_column, copy_of, pair_at, traces, tree_bytes
from support.processes import exit_code_of, start_child, wait_until
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.core.errors import OutputExists
from vlcpctl.data.splitting.stop_lists import read_stop_list, stop_lists_in
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.kinds import Hit
from vlcpctl.deletion.places import Stored
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import Condition, parse
from vlcpctl.files.staging import Staging
from vlcpctl.testing.tiny_stream import make_stream

Run = Callable[..., ProgramResult]
NOBODY = "0" * 64


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks, made once."""
    return make_stream(tmp_path_factory.mktemp("made") / "world/stream", 2, 8).parent


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return copy_of(made, tmp_path / "world")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `vlcpctl forget WORDS` in this process."""
    return lambda *words: run_program(capfd, "forget", *words)


def source_key(world: Path, row: int) -> str:
    return pair_at(world / "stream/00-part-0", row).source_key


def receipt_in(world: Path, number: int = 1) -> dict[str, Any]:
    return dict(json.loads((world / f"receipts/{number:04d}.json").read_text()))


def killed_in(
    world: Path, conditions: Sequence[Condition], point: str = "removed", **more: Any
) -> None:
    """Begin a deletion that is killed."""

    def observe(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    request = DeletionRequest(conditions=conditions, paths=[world], **more)
    child = start_child(lambda _: _void(forget(request, observe)))
    assert exit_code_of(child) == -signal.SIGKILL


def _void(_: object) -> None:
    """Nothing."""


def test_a_condition_that_selects_nothing_is_refused_before_anything_changes(
    run: Run, world: Path
) -> None:
    before = tree_bytes(world)
    words = ["--source-key", source_key(world, 0), "--source-key", "nosuch", "--sha256", NOBODY]
    words += ["--where", "label=bird"]
    for more in ([], ["--dry-run"]):
        refused = run(*words, world, "-q", *more)
        found = f"matches --source-key nosuch, --sha256 {NOBODY}, --where label=bird;"
        check_refused(refused, "forget", 3, found, "--missing-ok")
    assert tree_bytes(world) == before
    # The advice helps, and the receipt has the counts.
    done = run(*words, world, "--missing-ok")
    assert done.code == 0
    assert "--source-key nosuch: 0 pairs" in done.err
    assert "no pair matches 3 other conditions of the request" in done.err
    counts = [(one["by"], one["pairs"]) for one in receipt_in(world)["selectors"]]
    assert sorted(counts) == [
        *(("sha256", 0), ("source-key", 0), ("source-key", 1), ("where", 0)),
    ]


def test_what_each_condition_selects_is_counted_in_different_pairs(run: Run, world: Path) -> None:
    one = pair_at(world / "stream/00-part-0", 0)
    words = ["--key", one.key, "--sha256", one.sha256, "--where", "task=part 0", world]
    planned = run(*words, "--dry-run")
    assert f"  --sha256 {one.sha256}: 1 pair\n" in planned.out
    assert "  --where task=part 0: 12 pairs\n" in planned.out
    assert run(*words).code == 0
    receipt = receipt_in(world)
    assert [entry["pairs"] for entry in receipt["selectors"]] == [1, 1, 12]
    assert len(receipt["keys"]) == 12


def test_a_second_search_is_made_and_counted(run: Run, world: Path) -> None:
    done = run("--source-key", source_key(world, 0), world)
    assert "a second search of 3 artifacts finds 0 pairs" in done.err
    second = receipt_in(world)["second_search"]
    assert (second["artifacts"], second["pairs"]) == (3, 0)
    assert second["time"] >= receipt_in(world)["started"]


def test_an_interrupted_deletion_keeps_its_counts(run: Run, world: Path) -> None:
    one, other = source_key(world, 0), source_key(world, 1)
    killed_in(world, parse(source_key=[one, other]))
    pending = receipt_in(world)
    assert pending["state"] == "pending"
    done = run("--source-key", one, "--source-key", other, world, "-q")
    assert done.code == 0, done.err
    receipt = receipt_in(world)
    assert receipt["state"] == "finished"
    assert [entry["pairs"] for entry in receipt["selectors"]] == [1, 1]
    # What it matched is not missing when one of the pairs comes again.
    make_stream(world / "again", 1, 1, test=0)
    assert run("--source-key", one, "--source-key", other, world, "-q").code == 0
    assert [entry["pairs"] for entry in receipt_in(world, 2)["selectors"]] == [1, 0]


def test_nothing_at_all_has_a_receipt_with_missing_ok(run: Run, world: Path) -> None:
    words = ["--source-key", "nobody", world, "-q"]
    check_refused(run(*words), "forget", 3, "no pair under", "--missing-ok")
    assert run(*words, "--missing-ok").code == 0
    receipt = receipt_in(world)
    assert (receipt["state"], receipt["keys"], receipt["artifacts"]) == ("finished", [], [])
    assert receipt["second_search"]["pairs"] == 0
    again = run(*words, "--missing-ok")
    assert (again.code, again.out) == (0, f"{world}/receipts/0001.json\n")


def test_every_state_that_is_searched_gets_a_stop_list(run: Run, world: Path) -> None:
    """Also one that contains the path to search, and one in which nothing was found."""
    pair = pair_at(world / "stream/00-part-0", 0)
    inside, beside = world / "state/weeks/0001", world / "other"
    inside.mkdir(parents=True)
    beside.mkdir()
    (world / "stream").rename(inside / "stream")
    for state in (world / "state", beside):
        (state / "state.json").write_text('{\n "schema": "vlcpctl.state/1", "weeks": []}')
    (world / "copied").mkdir()  # the saved state of a training run has the same schema
    (world / "copied/state.json").write_text('{"schema": "vlcpctl.state/1", "files": {}}')
    words = ["--sha256", pair.sha256, "--source-key", pair.source_key, "-q"]
    words += [inside / "stream", beside, world / "copied"]
    assert run(*words, "--dry-run").code == 0
    assert not (beside / "deleted").exists()
    ended = run(*words, "--receipt", world / "r.json")
    assert ended.code == 0
    assert not (world / "copied/deleted").exists()
    lists = [*stop_lists_in(world / "state"), *stop_lists_in(beside)]
    assert json.loads((world / "r.json").read_text())["stop_lists"] == sorted(map(str, lists))
    assert len(lists) == 2
    for path in lists:
        found = read_stop_list(path)
        assert (found.keys, found.images, found.values) == ({pair.key}, {pair.sha256}, {})
    receipt = read_stop_list(world / "r.json")
    assert receipt == read_stop_list(lists[0])


def test_a_ticket_is_in_its_own_receipt(run: Run, world: Path) -> None:
    words = ["--source-key", source_key(world, 0), world, "-q"]
    assert run(*words, "--ticket", "A 1").out == f"{world}/receipts/0001.json\n"
    assert receipt_in(world)["ticket"] == "A 1"
    for more in (["--ticket", "A 1"], []):
        assert run(*words, *more).out == f"{world}/receipts/0001.json\n"
    # Another ticket has a receipt of its own, which says that nothing was left.
    assert run(*words, "--ticket", "B 2").out == f"{world}/receipts/0002.json\n"
    assert (receipt_in(world, 2)["ticket"], receipt_in(world, 2)["keys"]) == ("B 2", [])
    check_refused(run(*words, "--ticket", "\udcff"), "forget", 2, "is not UTF-8")


def test_targets_and_pseudo_texts_train_models() -> None:
    """Also where the task that they were made from is not searched."""
    stored = Stored(Path("a"), "", Path("a"))
    for kind, name, trains in (
        ("targets", "images", True),
        ("pseudo texts", "texts", True),
        ("embeddings", "rows", False),
        ("task", "test", False),
    ):
        assert Hit(stored, kind, {name: 1}).trains == trains


@pytest.mark.parametrize("is_listed", [True, False])
def test_skipped_repeats_are_found_by_the_name_in_the_source(
    is_listed: bool, run: Run, world: Path
) -> None:
    """Whether an index lists the pair, or only the tar of a buffer has it."""
    pair = pair_at(world / "stream/00-part-0", 0) if is_listed else _evicted(world)
    listed = world / "stream/skipped.ndjson"
    rows = [
        {"place": f"member a/{name}.jpg", "detail": "no caption"}
        for name in (pair.source_key, "other")
    ]
    listed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("--sha256", pair.sha256, world, "-q").code == 0
    assert [json.loads(line) for line in listed.read_text().splitlines()] == rows[1:]


def _evicted(world: Path) -> StoredPair:
    """A pair that only the tar of a buffer has, of which no index lists it."""
    first, second = sorted(path for path in (world / "stream").iterdir() if path.is_dir())
    how: dict[str, Any] = {"policy": "ring", "size": "8", "quiet": True}
    buffer(first, world / "buffers/0", **how)
    buffer(second, world / "buffers/1", previous=world / "buffers/0", **how)
    before, after = (open_task(world / f"buffers/{number}").split("train") for number in (0, 1))
    key = next(key for key in before.keys if key not in after.keys)
    found = pair_at(first, open_task(first).split("train").keys.index(key))
    shutil.rmtree(world / "buffers/0")
    shutil.rmtree(first)
    return found


@contextmanager
def _held(path: Path, ready: Path, done: Path) -> Iterator[None]:
    """Another process that writes an output within the block."""

    def hold(_: int) -> None:
        with Staging(path).locked():
            ready.touch()
            wait_until(done.exists)

    child = start_child(hold)
    wait_until(ready.exists)
    try:
        yield
    finally:
        done.touch()
        assert exit_code_of(child) == 0


def test_the_advice_on_links_and_unfinished_work_helps(
    run: Run, world: Path, tmp_path: Path
) -> None:
    task = world / "stream/00-part-0"
    words = ["--source-key", source_key(world, 0), "-q"]
    tar = task / "train-000000.tar"
    tar.rename(tmp_path / "moved.tar")
    tar.symlink_to(tmp_path / "moved.tar")
    check_refused(run(*words, world), "forget", 3, "put the file itself in its place")
    (tmp_path / "moved.tar").replace(tar)
    content = json.loads((task / "task.json").read_text())["content"]
    for about, advice in (
        ({"run": "x", "tasks": ["0" * 32]}, "give the paths of its data, too, or finish it or rem"),
        ({"run": "x", "tasks": [content]}, "finish it or remove it"),
    ):
        partial = Staging(world / "run/01").open_partial()
        (partial / "identity.json").write_text(json.dumps({"semantic": about}))
        check_refused(run(*words, world), "forget", 4, partial, advice)
        (partial / "identity.json").unlink()
        partial.rmdir()
    # The data of work that is elsewhere: with its path the deletion goes on.
    elsewhere = make_stream(tmp_path / "elsewhere", 1, 2)
    (other,) = (path for path in elsewhere.iterdir() if path.is_dir())
    content = json.loads((other / "task.json").read_text())["content"]
    partial = Staging(world / "run/01").open_partial()
    identity = {"semantic": {"run": "x", "tasks": [content]}}
    (partial / "identity.json").write_text(json.dumps(identity))
    check_refused(run(*words, world), "forget", 4, "give the paths of its data, too")
    words = ["--key", pair_at(task, 7).key, "-q"]
    assert run(*words, world, elsewhere).code == 0


def test_the_advice_on_receipts_helps(run: Run, world: Path, tmp_path: Path) -> None:
    first, second = (["--source-key", source_key(world, row), world, "-q"] for row in range(2))
    taken, foreign = tmp_path / "taken.json", tmp_path / "foreign.json"
    foreign.write_text("{}")
    assert run(*first, "--receipt", taken).code == 0
    inside = world / "stream/00-part-0/r.json"
    for path, code, advice in (
        (foreign, 4, "choose another --receipt"),
        (taken, 4, "choose another --receipt"),
        (inside, 2, "give a path outside of it"),
    ):
        check_refused(run(*second, "--receipt", path), "forget", code, advice)
    # A finished receipt of these pairs is not replaced by that of another ticket, either.
    refused = run(*first, "--receipt", taken, "--ticket", "B")
    check_refused(refused, "forget", 4, "choose another --receipt")
    assert run(*second, "--receipt", tmp_path / "other.json").code == 0
    make_stream(world / "again", 1, 1, test=0)
    refused = run(*first, "--receipt", taken)
    check_refused(refused, "forget", 4, "choose another --receipt")
    assert run(*first, "--receipt", tmp_path / "third.json").code == 0


def test_the_advice_on_an_interrupted_deletion_helps(run: Run, world: Path) -> None:
    name = source_key(world, 0)
    killed_in(world, parse(source_key=[name]), "pending", ticket="A")
    words = ["--source-key", name, world, "-q"]
    other = run("--source-key", source_key(world, 1), world, "-q")
    assert "0001.json is of a deletion that was interrupted; run its command again" in other.err
    refused = run(*words, "--ticket", "B")
    check_refused(refused, "forget", 4, "interrupted, with --ticket 'A'; finish it first")
    assert run(*words, "--ticket", "A").out == f"{world}/receipts/0001.json\n"
    assert run(*words, "--ticket", "B").out == f"{world}/receipts/0003.json\n"


def test_the_advice_on_columns_and_conditions_helps(run: Run, world: Path) -> None:
    refused = run("--where", "customer=a", world, "-q")
    check_refused(refused, "forget", 3, "'vlcpctl split --keep-columns' keeps columns")
    add_column(world / "stream/00-part-0", "customer", [["a"]] * 8)
    assert run("--where", "customer=a", world, "-q").code == 0
    refused = run(world, "-q")
    check_refused(refused, "forget", 2, "give --key, --source-key, --sha256, --where or --keys")
    refused = run("--key", "0" * 32, "/", "-q")
    check_refused(refused, "forget", 2, "give the directories to search")


def test_the_advice_on_damage_and_on_another_writer_helps(
    run: Run, world: Path, tmp_path: Path
) -> None:
    pair = pair_at(world / "stream/00-part-0", 0)
    words = ["--key", pair.key, world, "-q"]
    index = world / "stream/00-part-0/train.parquet"
    data = index.read_bytes()
    index.write_bytes(data[:-1])
    check_refused(run(*words), "forget", 3, index, "restore it")
    index.write_bytes(data)
    with _held(world / "new", tmp_path / "ready", tmp_path / "done"):
        check_refused(run(*words), "forget", 4, "--wait")
        (tmp_path / "done").touch()
        assert run(*words, "--wait").code == 0
    assert traces(world, pair) == []


def test_the_advice_to_check_helps(
    run: Run, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`check --deep` names the tar that `forget` cannot read."""
    words = ["--key", pair_at(world / "stream/00-part-0", 0).key, world, "-q"]
    tar = world / "stream/00-part-0/train-000000.tar"
    data = tar.read_bytes()
    flipped = bytearray(data)
    flipped[0] ^= 1  # a letter of the first name
    for damaged in (data + b"x" * 512, bytes(flipped)):
        tar.write_bytes(damaged)
        refused = run(*words)
        assert refused.code == 3, refused.err
        assert "run 'vlcpctl check" in refused.err or "restore it" in refused.err
        found = run_program(capfd, "check", "--deep", world / "stream")
        assert (found.code, tar.name in found.out + found.err) == (3, True)
    tar.write_bytes(data)
    assert run(*words).code == 0


def test_the_advice_on_a_writer_that_goes_on_helps(run: Run, world: Path, tmp_path: Path) -> None:
    pair = pair_at(world / "stream/00-part-0", 0)
    kept = copy_of(world / "stream", tmp_path / "kept")

    def write_again(point: str) -> None:
        if point == "removed":
            shutil.rmtree(world / "stream")
            copy_of(kept, world / "stream")

    request = DeletionRequest(conditions=parse([pair.key]), paths=[world])
    with pytest.raises(OutputExists, match="another process writes them; run the same command"):
        forget(request, write_again)
    assert run("--key", pair.key, world, "-q").code == 0
    assert traces(world, pair) == []
