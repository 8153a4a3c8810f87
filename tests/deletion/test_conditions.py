"""What conditions select is counted before anything is removed; receipts, tickets and refusals."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.deletion_world import copy_of, pair_at, traces, tree_bytes
from support.processes import exit_code_of, killed_before, start_child, wait_until
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.data.splitting.leaving_out import read_stop_list, stop_lists_in
from vlcpctl.deletion import request as requests
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.files.outputs import Output
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


def interrupted(world: Path, *source_keys: str, ticket: str | None = None) -> None:
    """Begin a deletion that is killed after its receipt was written."""
    conditions = parse(source_key=source_keys)
    request = DeletionRequest(conditions=conditions, paths=[world], ticket=ticket)
    assert killed_before(f"{world}/stream", lambda: forget(request))
    assert receipt_in(world)["state"] == "pending"


def test_a_condition_that_selects_nothing_is_refused_before_anything_changes(
    run: Run, world: Path
) -> None:
    before = tree_bytes(world)
    words = ["--source-key", source_key(world, 0), "--source-key", "nosuch", "--sha256", NOBODY]
    words += ["--where", "label=bird", "--key", "0" * 32]
    for more in ([], ["--dry-run"]):
        refused = run(*words, world, "-q", *more)
        check_refused(refused, "forget", 3, "nosuch", NOBODY, "label=bird", "--missing-ok")
    assert tree_bytes(world) == before
    # The advice helps, and the receipt has the counts.
    done = run(*words, world, "--missing-ok")
    assert done.code == 0, done.err
    assert "found nowhere: 4 conditions" in done.err
    counts = [(one["by"], one["pairs"]) for one in receipt_in(world)["selectors"]]
    assert sorted(counts) == [
        *(("key", 0), ("sha256", 0), ("source-key", 0), ("source-key", 1), ("where", 0)),
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


def test_an_interrupted_deletion_keeps_its_counts(run: Run, world: Path) -> None:
    one, other = source_key(world, 0), source_key(world, 1)
    interrupted(world, one, other)
    words = ["--source-key", one, "--source-key", other, world]
    done = run(*words)
    assert (done.code, done.out) == (0, f"{world}/receipts/0001.json\n"), done.err
    assert "a second search of 3 artifacts finds 0 pairs" in done.err
    assert receipt_in(world)["state"] == "finished"
    assert [entry["pairs"] for entry in receipt_in(world)["selectors"]] == [1, 1]
    again = run(*words)
    assert (again.code, again.out) == (0, done.out)
    assert "nothing is left to remove" in again.err
    # What it matched is not missing when one of the pairs comes again.
    make_stream(world / "again", 1, 1, test=0)
    assert run(*words, "-q").code == 0
    assert [entry["pairs"] for entry in receipt_in(world, 2)["selectors"]] == [1, 0]


def test_receipts_of_version_0_3_are_read(run: Run, world: Path) -> None:
    words = ["--source-key", source_key(world, 0), world, "-q"]
    assert run(*words).code == 0
    path = world / "receipts/0001.json"
    found = {name: one for name, one in receipt_in(world).items() if name != "notes"}
    for entry in found["artifacts"]:
        del entry["again"]
        entry["before"]["files"] = {"train.parquet": {"bytes": 1}}
    found["checkpoints"] = [{"path": "/a", "content": "0" * 32, "run": "r", "step": 0, "seed": 0}]
    path.write_text(json.dumps({**found, "mentions": [], "not_found": [], "versions": {}}))
    planned = run(*words, "--dry-run")
    assert "depends on them: checkpoint /a" in planned.out
    assert run(*words).out == f"{path}\n"


def test_a_path_that_a_deletion_has_deleted_may_be_given_again(
    run: Run, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, out = world / "stream/00-part-0", world / "out"
    made = run_program(capfd, "export", task, "--to", "hf", "-o", out, "-q")
    assert made.code == 0, made.err
    words = ["--key", pair_at(task, 0).key, out, task, "-q"]
    done = [run(*words), run(*words)]
    assert [one.out for one in done] == [f"{world}/receipts/0001.json\n"] * 2
    assert not out.exists()
    check_refused(run("--key", "1" * 32, out, task, "-q"), "forget", 3, "does not exist")


def test_every_state_that_is_searched_gets_a_stop_list(run: Run, world: Path) -> None:
    """Also one that contains the path to search, and one in which nothing was found."""
    pair = pair_at(world / "stream/00-part-0", 0)
    inside, beside = world / "state/attempts/0002", world / "other"
    inside.mkdir(parents=True)
    beside.mkdir()
    (world / "stream").rename(inside / "stream")
    for state in (world / "state", beside):
        (state / "state.json").write_text('{\n "schema": "vlcpctl.state/2", "attempts": []}')
    (world / "copied").mkdir()  # the saved state of a training run has the same schema
    (world / "copied/state.json").write_text('{"schema": "vlcpctl.state/1", "files": {}}')
    words = ["--sha256", pair.sha256, "--source-key", pair.source_key, "-q"]
    words += [inside / "stream", beside, world / "copied"]
    assert run(*words, "--dry-run").code == 0
    assert not (beside / "deleted").exists()
    assert run(*words, "--receipt", world / "r.json").code == 0
    assert not (world / "copied/deleted").exists()
    lists = [*stop_lists_in(world / "state"), *stop_lists_in(beside)]
    assert json.loads((world / "r.json").read_text())["stop_lists"] == sorted(map(str, lists))
    assert len(lists) == 2
    for path in lists:
        found = read_stop_list(path)
        assert (list(found.keys), list(found.images)) == ([pair.key], [pair.sha256[:32]])
        assert not found.values
    assert read_stop_list(world / "r.json") == read_stop_list(lists[0])


def test_a_state_of_0_3_would_forget_the_deletion(run: Run, world: Path) -> None:
    pair = pair_at(world / "stream/00-part-0", 0)
    (world / "state.json").write_text('{"schema": "vlcpctl.state/1", "weeks": []}')
    for path in (world, world / "stream"):
        check_refused(run("--key", pair.key, path, "-q"), "forget", 3, "inspect")
    assert pair_at(world / "stream/00-part-0", 0) == pair


def test_a_ticket_is_in_its_own_receipt(run: Run, world: Path) -> None:
    words = ["--source-key", source_key(world, 0), world, "-q"]
    for more in (["--ticket", "A 1"], ["--ticket", "A 1"], []):
        assert run(*words, *more).out == f"{world}/receipts/0001.json\n"
    assert receipt_in(world)["ticket"] == "A 1"
    # Another ticket has a receipt of its own, which says that nothing was left.
    assert run(*words, "--ticket", "B 2").out == f"{world}/receipts/0002.json\n"
    assert (receipt_in(world, 2)["ticket"], receipt_in(world, 2)["keys"]) == ("B 2", [])
    check_refused(run(*words, "--ticket", "\udcff"), "forget", 2)


def test_an_interrupted_deletion_is_finished_first(run: Run, world: Path, tmp_path: Path) -> None:
    """By a call for all of its paths, and with its ticket."""
    name = source_key(world, 0)
    interrupted(world, name, ticket="A")
    other = run("--source-key", source_key(world, 1), world, "-q")
    assert "0001.json is of a deletion that was interrupted" in other.err
    words = ["--source-key", name, "-q"]
    check_refused(run(*words, world, "--ticket", "B"), "forget", 4, "--ticket 'A'")
    part = run(*words, world / "stream")
    assert (part.out, "interrupted" in part.err) == (f"{world}/receipts/0003.json\n", True)
    assert receipt_in(world)["state"] == "pending"
    more = make_stream(tmp_path / "more", 1, 1, test=0)
    done = run(*words, world, more, "--ticket", "A")
    assert done.out == f"{world}/receipts/0001.json\n", done.err
    assert (receipt_in(world)["state"], len(receipt_in(world)["paths"])) == ("finished", 2)
    assert len(receipt_in(world)["artifacts"]) == 4, "what was given in addition is searched, too"


def test_where_a_receipt_may_be(run: Run, world: Path, tmp_path: Path) -> None:
    first, second = (["--source-key", source_key(world, row), world, "-q"] for row in range(2))
    taken, foreign, link = (tmp_path / f"{name}.json" for name in ("taken", "foreign", "link"))
    foreign.write_text("{}")
    link.symlink_to("foreign.json")
    assert run(*first, "--receipt", taken).out == f"{taken}\n"
    for path, code in ((foreign, 4), (taken, 4), (link, 4), (world / "stream/r.json", 2)):
        check_refused(run(*second, "--receipt", path), "forget", code)
    # A finished receipt of these pairs is not replaced by that of another ticket, either.
    check_refused(run(*first, "--receipt", taken, "--ticket", "B"), "forget", 4)
    make_stream(world / "again", 1, 1, test=0)
    check_refused(run(*first, "--receipt", taken), "forget", 4)
    assert not (world / "receipts").exists()
    # Without the option, it is at the first path; that of an artifact is beside it.
    words = ["--source-key", source_key(world, 1), world / "stream/01-part-1", world, "-q"]
    assert run(*words).out == f"{world}/receipts/0001.json\n"


WRONG: list[dict[str, list[Any]]] = [
    *({}, {"key": ["abc"]}, {"key": ["g" * 32]}, {"sha256": ["0" * 32]}),
    *({"where": ["customer"]}, {"where": ["customer=\udcff"]}, {"source_key": ["\udcff"]}),
]


def test_malformed_conditions_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in WRONG:
        with pytest.raises(UsageError):
            parse(**words)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    for path in (tmp_path / "missing.txt", Path("-")):
        with pytest.raises(BadInput):
            parse(keys_from=[path])
    check_refused(run("--key", "0" * 32, "/"), "forget", 2)
    listed = tmp_path / "keys.txt"  # split at newlines only
    listed.write_text("a" * 32 + "\u2028" + "b" * 32 + "\n")
    with pytest.raises(UsageError):
        parse(keys_from=[listed])
    listed.write_bytes(b"a" * 32 + b"\r\n\n" + b"B" * 32)
    assert [one.value for one in parse(keys_from=[listed])] == ["a" * 32, "b" * 32]


@contextmanager
def _held(path: Path, ready: Path, done: Path) -> Iterator[None]:
    """Another process that writes an output within the block."""

    def hold(_: int) -> None:
        with Output(path).locked():
            ready.touch()
            wait_until(done.exists)

    child = start_child(hold)
    wait_until(ready.exists)
    try:
        yield
    finally:
        done.touch()
        assert exit_code_of(child) == 0


def test_damage_and_other_writers_are_refused_before_anything_changes(
    run: Run, world: Path, tmp_path: Path
) -> None:
    pair = pair_at(world / "stream/00-part-0", 0)
    words = ["--key", pair.key, world, "-q"]
    for name in ("train.parquet", "train-000000.tar"):
        path = world / "stream/00-part-0" / name
        data = path.read_bytes()
        path.write_bytes(data[:-512])
        before = tree_bytes(world)
        check_refused(run(*words), "forget", 3, path)
        assert tree_bytes(world) == before
        path.write_bytes(data)
    with _held(world / "new", tmp_path / "ready", tmp_path / "done"):
        check_refused(run(*words), "forget", 4, world / "new")
        (tmp_path / "done").touch()
        assert run(*words, "--wait").code == 0
    assert traces(world, pair) == []


def test_a_writer_that_goes_on_is_refused(
    run: Run, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_at(world / "stream/00-part-0", 0)
    kept = copy_of(world / "stream", tmp_path / "kept")

    def write_again(*_: object) -> None:
        shutil.rmtree(world / "stream")
        copy_of(kept, world / "stream")

    with monkeypatch.context() as patch:
        patch.setattr(requests, "empty_caches", write_again)
        request = DeletionRequest(conditions=parse([pair.key]), paths=[world])
        with pytest.raises(OutputExists, match="run the same command again"):
            forget(request)
    assert run("--key", pair.key, world, "-q").code == 0
    assert traces(world, pair) == []
