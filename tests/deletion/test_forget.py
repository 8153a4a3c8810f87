"""`vlcpctl forget`: nothing of a pair is left, all else stays, and a receipt lists what it did."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.deletion_world import (
    NEXT,
    TRAIN,
    StoredPair,
    add_column,
    copy_of,
    evicted_pair,
    held_pair,
    make_deletion_world,
    pair_at,
    traces,
    tree_bytes,
    vectors_of,
)
from support.processes import exit_code_of, run_line, start_child, wait_until
from support.program import check_refused, run_program

from vlcpctl.core.errors import UsageError
from vlcpctl.data.tasks.task import open_stream, open_task
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.files import outputs
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_pair, make_task

DATA = ("stream", *(f"buffers/0{number}" for number in range(4)))
DERIVED = ("targets", "texts.parquet", "emb")  # deleted, since all that makes them again is there
CHECKPOINTS = ("run/00", "run/01", "apart/00")
EVERYTHING = (*DATA, "other", *CHECKPOINTS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the data that all tests copy is made, once."""
    return tmp_path_factory.mktemp("made") / "world"


@pytest.fixture
def world(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    if not made.exists():
        make_deletion_world(made, capfd)
    return copy_of(made, tmp_path / "world")


def receipt_of(capfd: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """The receipt that a deletion prints."""
    ended = run_program(capfd, "forget", *words, "--json", "-q")
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def problems(world: Path, names: tuple[str, ...] = EVERYTHING) -> list[str]:
    """What `check --deep` finds."""
    return [problem for name in names for problem in check(world / name, deep=True)]


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a task or stream."""
    file = path / ("stream.json" if path.name == "stream" else "task.json")
    return dict(json.loads(file.read_text()))


def content(path: Path) -> str:
    """The content id of a task or stream."""
    return str(manifest_of(path)["content"])


@pytest.mark.parametrize("which", [held_pair, evicted_pair])
def test_nothing_of_a_pair_is_left(
    which: Callable[[Path], StoredPair], world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = which(world)
    assert len(traces(world, pair)) > 10
    vectors = [one.tobytes() for one in vectors_of(world, pair)]
    assert any(vectors[0] in data for data in tree_bytes(world).values())
    before = {name: tree_bytes(world / name) for name in CHECKPOINTS}
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert traces(world, pair) == []
    assert not any(one in data for data in tree_bytes(world).values() for one in vectors)
    assert problems(world) == []
    assert {name: tree_bytes(world / name) for name in CHECKPOINTS} == before
    assert not list(world.rglob(".*")), "no hidden directory is left"
    assert receipt["keys"] == [pair.key]
    assert receipt["images"] == [pair.sha256]
    assert [Path(one["path"]).parent.name for one in receipt["checkpoints"]] == ["run", "run"]
    assert receipt["unknown"] == receipt["mentions"] == receipt["not_found"] == []


def test_the_receipt_has_ids_and_digests_before_and_after(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    before = {name: content(world / name) for name in ("stream", "buffers/02")}
    ended = run_program(capfd, "forget", "--source-key", pair.source_key, world, "-q")
    assert (ended.code, ended.out) == (0, f"{world}/receipts/0001.json\n")
    text = (world / "receipts/0001.json").read_text()
    assert pair.captions[0] not in text
    assert f'"{pair.source_key}"' not in text
    receipt = json.loads(text)
    assert receipt["state"] == "finished"
    found = {Path(one["path"]).relative_to(world).as_posix(): one for one in receipt["artifacts"]}
    assert set(found) == {
        *(*DATA, *DERIVED),
        "stream/00-part-0",
        "ranks.parquet",
        ".other.vlcpctl/replaced/other",
    }
    for name, was in before.items():
        assert found[name]["before"]["content"] == was
        assert found[name]["after"]["content"] == content(world / name) != was
        assert manifest_of(world / name)["id"] == was
    tar = found["buffers/02"]["after"]["files"]
    assert any(name.endswith(".tar") for name in tar)
    assert all(tar[name] != entry for name, entry in found["buffers/02"]["before"]["files"].items())
    assert found["stream/00-part-0"]["removed"] == {"train": 1}
    assert found[".other.vlcpctl/replaced/other"]["action"] == "deleted"
    assert found["texts.parquet"]["kind"] == "pseudo texts"


def test_the_other_pairs_stay_what_they_were(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    names = ("stream/00-part-0", "buffers/01", "buffers/03")

    def rest(name: str) -> dict[str, tuple[bytes, list[str], object]]:
        split = open_task(world / name).split("train")
        orders = split.column("order") if name.startswith("buffers") else split.keys
        return {
            key: (split.image(row), split.captions(row), orders[row])
            for row, key in enumerate(split.keys)
            if key != pair.key
        }

    before = {name: rest(name) for name in names}
    links = (world / "buffers/00/train-000000.tar").stat().st_nlink
    identity = json.loads((world / "buffers/01/task.json").read_text())["identity"]
    ranks = pq.read_table(world / "ranks.parquet").to_pylist()
    receipt_of(capfd, "--key", pair.key, world)
    assert {name: rest(name) for name in names} == before
    assert (world / "buffers/00/train-000000.tar").stat().st_nlink == links > 1
    assert json.loads((world / "buffers/01/task.json").read_text())["identity"] == identity
    kept = [row for row in ranks if row["query"] != pair.key]
    for row in kept:
        if row["wrong"] == pair.key:
            row.update(wrong=None, wrong_caption=None)
    assert pq.read_table(world / "ranks.parquet").to_pylist() == kept
    assert len(open_stream(world / "stream")) == 4


def test_what_force_replaced_is_found_beside_a_path_that_is_given(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (entry,) = receipt_of(capfd, "--key", held_pair(world).key, world / "other")["artifacts"]
    replaced = world / ".other.vlcpctl/replaced/other"
    assert (entry["path"], entry["action"]) == (str(replaced), "deleted")
    assert not replaced.exists()


@pytest.mark.parametrize("name", ["targets", "emb", "texts.parquet"])
def test_what_was_deleted_is_made_again_by_the_line_that_is_named(
    name: str, made: Path, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    receipt = receipt_of(capfd, "--key", pair.key, world)
    (entry,) = (one for one in receipt["artifacts"] if one["path"] == str(world / name))
    assert (entry["action"], (world / name).exists()) == ("deleted", False)
    words = shlex.split(entry["again"])
    if name == "texts.parquet":  # does not say how it was made
        words += ["--checkpoint", str(world / "run/00"), "--count", "8", "--iterations", "1"]
        words += ["--buffer", str(world / "buffers/00"), "-o", str(world / name), "-q"]
    ended = run_program(capfd, *(word.replace(str(made), str(world)) for word in words[1:]))
    assert ended.code == 0, ended.err
    assert problems(world, (name,)) == []
    assert traces(world, pair) == []


@pytest.mark.parametrize("gone", ["run/00", "stream"])
def test_what_cannot_be_made_again_is_rewritten(
    gone: str, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A teacher that is gone, or the task."""
    pair = held_pair(world)
    keys = pq.read_table(world / "targets/texts.parquet")["key"].to_pylist()
    before = np.load(world / "targets/texts.npy")[[key != pair.key for key in keys]]
    vectors = [one.tobytes() for one in vectors_of(world, pair)]
    shutil.rmtree(world / gone)
    receipt = receipt_of(capfd, "--key", pair.key, world)
    np.testing.assert_array_equal(np.load(world / "targets/texts.npy"), before)
    actions = {Path(one["path"]).name: one["action"] for one in receipt["artifacts"]}
    assert (actions["targets"], actions["emb"]) == ("rewritten", "rewritten")
    assert traces(world, pair) == []
    assert not any(one in data for data in tree_bytes(world).values() for one in vectors)
    assert problems(world, ("targets", "emb")) == []


def test_a_dry_run_lists_all_of_it_and_changes_nothing(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair, before = held_pair(world), tree_bytes(world)
    ended = run_program(capfd, "forget", "--sha256", pair.sha256, world, "--dry-run")
    assert ended.code == 0, ended.err
    assert tree_bytes(world) == before
    for name in (*DATA, *DERIVED, "ranks.parquet", ".other.vlcpctl/replaced/other"):
        assert f" {world / name}" in ended.out
    assert f"rewrite buffer {world}/buffers/03: 1 train\n" in ended.out
    assert f"depends on them: checkpoint {world}/run/01 " in ended.out
    assert "apart" not in ended.out
    assert receipt_of(capfd, "--sha256", pair.sha256, world, "--dry-run")["state"] == "pending"
    assert tree_bytes(world) == before


def kill_at(points: int, name: str) -> Callable[[str], None]:
    """Kill this process at a point of this name, or before the n-th rename or exchange of names."""

    def observe(point: str) -> None:
        if point == name:
            os.kill(os.getpid(), signal.SIGKILL)

    if points:
        left = [points]

        def counted(change: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments, **more)

            return call

        os.rename = counted(os.rename)
        outputs._exchange = counted(outputs._exchange)
    return observe


# One of each kind, the others are slow: points that are named, and renames of files.
KILLS = [
    *((0, name) for name in ("pending", "deleting other", "rewriting stream", "written stream")),
    *((0, name) for name in ("removed", "finished")),
    (3, ""),
]
SLOW_KILLS = [
    *(
        (0, name)
        for name in (
            "written 00",
            "written ranks.parquet",
            "deleting targets",
            "deleted texts.parquet",
        )
    ),
    *((number, "") for number in range(1, 23) if number != 3),
]


@pytest.mark.parametrize(
    ("number", "point"),
    [*KILLS, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW_KILLS)],
)
def test_a_killed_deletion_is_completed_by_the_same_command(
    number: int, point: str, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The condition is a column that targets, embeddings and ranks do not have."""
    pair = held_pair(world)
    request = DeletionRequest(conditions=parse(source_key=[pair.source_key]), paths=[world])
    child = start_child(lambda _: void(forget(request, kill_at(number, point))))
    assert exit_code_of(child) == -signal.SIGKILL
    receipt = receipt_of(capfd, "--source-key", pair.source_key, world)
    assert traces(world, pair) == []
    assert problems(world) == []
    assert not list(world.rglob(".*"))
    assert [path.name for path in (world / "receipts").iterdir()] == ["0001.json"]
    assert receipt["state"] == "finished"
    assert receipt["keys"] == [pair.key]
    assert len(receipt["checkpoints"]) == 2
    rewritten = [one for one in receipt["artifacts"] if one["action"] == "rewritten"]
    assert len(rewritten) == len(DATA) + 2
    assert not [name for name in DERIVED if (world / name).exists()]
    for one in rewritten:
        assert one["before"]["files"].keys() >= one["after"]["files"].keys() != set()
        assert one["before"] != one["after"]


def void(_: object) -> None:
    """Nothing."""


def test_the_next_writer_deletes_what_a_killed_swap_has_left(world: Path) -> None:
    """Between its two renames, the old directory is where any command cleans up."""
    pair = held_pair(world)
    buffer = world / "buffers/03"
    request = DeletionRequest(conditions=parse([pair.key]), paths=[buffer.parent])
    child = start_child(lambda _: void(forget(request, lambda _: void(kill_at(3, "")))))
    assert exit_code_of(child) == -signal.SIGKILL
    for number in range(4):
        with Output(world / f"buffers/0{number}").locked():
            pass
    assert not list(world.glob("buffers/.*"))


def test_hard_links_elsewhere_are_refused(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    tar = world / "buffers/01/train-000000.tar"
    count = tar.stat().st_nlink
    before = tree_bytes(world)
    words = ["forget", "--key", pair.key, "-q"]
    ended = run_program(capfd, *words, world / "buffers/01")
    check_refused(ended, "forget", 3, tar, f"{count} hard links, 1 of them", "directories")
    os.link(tar, tmp_path / "copy.tar")
    check_refused(run_program(capfd, *words, world), "forget", 3, f"{count + 1} hard links")
    (tmp_path / "copy.tar").rename(world / "copy.tar")
    check_refused(run_program(capfd, *words, world), "forget", 3, "not part of an artifact")
    (world / "copy.tar").unlink()
    assert tree_bytes(world) == before
    assert run_program(capfd, *words, world).code == 0
    assert traces(world, pair) == []


def test_a_tar_that_is_a_symbolic_link_is_refused(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = pair_at(world / "stream/02-part-2", 0)
    tar = world / "stream/02-part-2/train-000000.tar"
    tar.rename(tmp_path / "moved.tar")
    tar.symlink_to(tmp_path / "moved.tar")
    ended = run_program(capfd, "forget", "--key", pair.key, world, "-q")
    check_refused(ended, "forget", 3, tar, "symbolic link")


def test_refusals_have_paths_as_they_were_given(
    world: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = held_pair(world)
    monkeypatch.chdir(world.parent)
    words = ["forget", "--key", pair.key, "-q"]
    refused = []

    def check(code: int, *said: object) -> None:
        ended = run_program(capfd, *words, *said[:-1])
        check_refused(ended, "forget", code, said[-1])
        refused.append(ended.err)

    check(3, "world/buffers/01", ": world/buffers/01/train-000000.tar has ")
    check(2, "world", "--receipt", "world/stream/r.json", " is inside world/stream; ")
    os.link("world/buffers/01/train-000000.tar", "world/copy.tar")
    check(3, "world", ": world/copy.tar is a hard link to world/buffers/00/train-000000.tar and ")
    Path("world/copy.tar").unlink()
    make_partial(world, "run/02", {"semantic": {"run": "x", "tasks": ["0" * 32]}})
    check(4, "world", ": world/run/.02.vlcpctl/partial is unfinished work on data ")
    run = {"run": "x", "tasks": [content(world / "stream/00-part-0")]}
    make_partial(world, "run/02", {"semantic": run})
    check(4, "world", ": world/run/.02.vlcpctl/partial is an unfinished run ")
    Path("world/buffers/01/train-000000.tar").rename("moved.tar")
    Path("world/buffers/01/train-000000.tar").symlink_to(Path("moved.tar").absolute())
    check(3, "world", ": world/buffers/01/train-000000.tar is a symbolic link to moved.tar, ")
    assert not [line for line in refused if str(world.parent) in line]


def make_partial(world: Path, out: str, identity: dict[str, Any]) -> Path:
    """The state of an unfinished command."""
    partial = Output(world / out).open_partial()
    (partial / "identity.json").write_text(json.dumps(identity))
    np.save(partial / "images-000000.npy", np.zeros((2, 2), np.float32))
    return partial


def test_an_unfinished_run_on_the_data_is_refused(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    words = ["forget", "--key", pair.key, world, "-q"]
    for about, what in (
        ({"tasks": [content(world / "stream/00-part-0")]}, "data that contains the pairs"),
        ({"tasks": [], "buffer": content(world / "buffers/01")}, "data that contains the pairs"),
        ({"tasks": ["0" * 32]}, "not under the given paths"),
    ):
        partial = make_partial(world, "run/02", {"semantic": {"run": "x", **about}, "numeric": {}})
        before = tree_bytes(world)
        check_refused(run_program(capfd, *words), "forget", 4, partial, what)
        assert tree_bytes(world) == before
    (partial / "identity.json").write_text("{")  # of which data is not known
    check_refused(run_program(capfd, *words), "forget", 4, partial, "finish it or remove it")
    other = {"run": "x", "tasks": [content(world / "stream/03-part-3")]}
    partial = make_partial(world, "run/02", {"semantic": other, "numeric": {}})
    assert run_program(capfd, *words).code == 0
    assert partial.is_dir()


def test_unfinished_targets_start_over(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pair = held_pair(world)
    mine = {"teacher": "t", "tasks": [content(world / "stream/00-part-0")], "buffer": None}
    other = {"teacher": "t", "tasks": [content(world / "stream/03-part-3")], "buffer": None}
    gone, stays = make_partial(world, "gone", mine), make_partial(world, "stays", other)
    make_partial(world, "run/00", {"semantic": {**mine, "run": "x"}})
    Output(world / "run/00").drop_partial(keeps=True)
    kept = Output(world / "run/00").replaced.with_name("partial")
    assert kept.exists()
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert (gone.exists(), stays.exists(), kept.exists()) == (False, True, False)
    assert str(gone) in [one["path"] for one in receipt["artifacts"]]


def test_what_nothing_matches(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair, before = held_pair(world), tree_bytes(world)
    words = ["forget", "--source-key", "nobody", world]
    check_refused(run_program(capfd, *words), "forget", 3, "no pair under")
    assert tree_bytes(world) == before
    first = run_program(capfd, "forget", "--source-key", pair.source_key, world)
    again = run_program(capfd, "forget", "--source-key", pair.source_key, world)
    assert (again.code, again.out) == (0, first.out)
    assert "nothing is left to remove" in again.err
    check_refused(run_program(capfd, *words, "-q"), "forget", 3, "no pair under")


def test_a_given_receipt(world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = held_pair(world), pair_at(world / "stream/02-part-2", 1)
    out, foreign = tmp_path / "receipt.json", tmp_path / "foreign.json"
    foreign.write_text("{}")
    words = ["forget", world, "-q", "--receipt"]
    ended = run_program(capfd, *words, foreign, "--key", first.key)
    check_refused(ended, "forget", 4, "not a receipt")
    assert run_program(capfd, *words, out, "--key", first.key).out == f"{out}\n"
    ended = run_program(capfd, *words, out, "--key", second.key)
    check_refused(ended, "forget", 4, "receipt of another deletion")
    ended = run_program(capfd, *words, world / "stream/00-part-0/r.json", "--key", second.key)
    check_refused(ended, "forget", 2, "is inside", world / "stream")
    assert not (world / "receipts").exists()
    # Without the option, it is at the first path; that of an artifact is beside it.
    ended = run_program(capfd, "forget", world / "stream/02-part-2", world, "--key", second.key)
    assert ended.out == f"{world}/receipts/0001.json\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--key", "abc"),
        ("--key", "g" * 32),
        ("--sha256", "0" * 32),
        ("--where", "customer"),
        ("--where", "customer=\udcff"),
        ("--source-key", "\udcff"),
        ("--keys", "missing.txt"),
    ],
)
def test_malformed_selectors_are_refused(
    words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = run_program(capfd, "forget", *words, tmp_path)
    check_refused(ended, "forget", 3 if "--keys" in words else 2)


def test_keys_on_stdin_that_are_not_utf8_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    ended = run_program(capfd, "forget", "--keys", "-", tmp_path)
    check_refused(ended, "forget", 3, "<stdin> is not UTF-8 text")


def test_files_of_keys_are_split_at_newlines_only(tmp_path: Path) -> None:
    listed = tmp_path / "keys.txt"
    listed.write_text("a" * 32 + "\u2028" + "b" * 32 + "\n")
    with pytest.raises(UsageError):
        parse(keys_from=[listed])
    listed.write_bytes(b"a" * 32 + b"\r\n" + b"b" * 32)
    assert [one.value for one in parse(keys_from=[listed])] == ["a" * 32, "b" * 32]


def test_keys_of_a_file_and_what_was_not_found(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = held_pair(world), pair_at(world / "stream/02-part-2", 1, "test")
    listed = world / "keys.txt"
    listed.write_text(f"{first.key}\n\n{second.key.upper()}\n{'0' * 32}\n")
    words = ["forget", "--keys", listed, world, "--json"]
    check_refused(run_program(capfd, *words), "forget", 3, f"matches --key {'0' * 32};")
    ended = run_program(capfd, *words, "--missing-ok")
    receipt = json.loads(ended.out)
    assert receipt["keys"] == sorted([first.key, second.key])
    assert receipt["not_found"] == ["0" * 32]
    assert receipt["mentions"] == [str(listed)]
    assert "1 key of the request found nowhere" in ended.err
    assert "a key is still named in 1 file, such as" in ended.err
    assert problems(world) == []


def test_a_pair_that_is_only_evaluated_is_in_no_lineage(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = pair_at(world / "stream/00-part-0", 0, "test")
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert receipt["checkpoints"] == []
    assert traces(world, pair) == []


def test_a_pair_for_validation_is_in_the_lineage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = make_task(tmp_path / "task", splits={"train": 4, "val": 2, "test": 2})
    assert run_program(capfd, "train-step", task, "-o", tmp_path / "model", *TRAIN).code == 0
    for split, found in (("test", []), ("val", [str(tmp_path / "model")])):
        receipt = receipt_of(capfd, "--key", pair_at(task, 0, split).key, tmp_path)
        assert [one["path"] for one in receipt["checkpoints"]] == found


def test_checkpoints_whose_data_is_not_there_are_listed_as_unknown(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that continues a model which has learned the pair from a buffer depends on it, too."""
    pair = held_pair(world)
    later = (world / "stream/02-part-2", "-o", world / "run/02", "--previous", world / "run/01")
    assert run_program(capfd, "train-step", *later, *NEXT).code == 0
    shutil.rmtree(world / "stream")
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert [Path(one["path"]).name for one in receipt["checkpoints"]] == ["01", "02"]
    unknown = [Path(one["path"]).relative_to(world).as_posix() for one in receipt["unknown"]]
    assert unknown == ["apart/00", "run/00"]


def test_columns_select_pairs(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A kept column is in the index of the task only; the buffers have the pairs by their keys."""
    task = world / "stream/00-part-0"
    keys = open_task(task).split("train").keys
    add_column(task, "customer", [["4711", "b"] if row < 2 else ["c"] for row in range(len(keys))])
    assert problems(world, ("stream",)) == []
    ended = run_program(capfd, "forget", "--where", "client=4711", world, "-q")
    check_refused(ended, "forget", 3, "no index has a column 'client'", "customer")
    ended = run_program(capfd, "forget", "--where", "customer=4711", world, "--dry-run")
    assert "40 pairs without a value in a column of --where" in ended.err
    pairs = [pair_at(task, row) for row in range(2)]
    receipt = receipt_of(capfd, "--where", "customer=4711", world)
    assert receipt["keys"] == sorted(keys[:2])
    (selector,) = receipt["selectors"]
    assert selector["sha256"] == hashlib.sha256(b"4711").hexdigest()
    assert [trace for pair in pairs for trace in traces(world, pair)] == []
    assert problems(world) == []
    assert pq.read_table(task / "train.parquet")["customer"].to_pylist() == [["c"]] * 6


def test_paths_are_shown_as_they_were_given(
    world: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.parent)
    stored = pair_at(world / "stream/00-part-0", 0)
    words = ("forget", "--key", stored.key, world.name)
    planned = run_program(capfd, *words, "--dry-run")
    assert f"rewrite task {world.name}/stream/00-part-0: " in planned.out
    ended = run_program(capfd, *words)
    assert ended.out == f"{world.name}/receipts/0001.json\n"
    assert f"rewrote {world.name}/stream" in ended.err
    assert str(world) not in planned.out + planned.err + ended.err
    assert run_program(capfd, *words).out == ended.out
    paths = json.loads((world / "receipts/0001.json").read_text())["paths"]
    assert paths == [str(world)]


def test_samples_that_no_index_lists_are_not_left_out(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The task and the buffer that listed it are gone; its tar is still that of a later buffer."""
    pair = evicted_pair(world)
    label = open_task(world / "buffers/01").split("train").column("label")[0]
    for name in ("stream", "buffers/00", "targets", "emb", ".other.vlcpctl"):
        shutil.rmtree(world / name)
    for name in ("ranks.parquet", "texts.parquet"):
        (world / name).unlink()
    assert traces(world, pair)
    words = ["--source-key", pair.source_key]
    assert receipt_of(capfd, *words, world, "--dry-run")["keys"] == [pair.key]
    # A column other than those in the tars cannot tell: everything evicted is removed.
    add_column(world / "buffers/03", "customer", [["a"]] * 6)
    ended = run_program(capfd, "forget", "--where", "customer=a", world)
    assert ended.code == 0, ended.err
    assert "buffers evicted and no index lists" in ended.err
    assert traces(world, pair) == []
    names = ("buffers/01", "buffers/02", "buffers/03")
    assert problems(world, names) == []
    assert label is not None


def test_the_last_pairs_of_a_task(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    receipt_of(capfd, "--where", "task=part 0", world)
    task = open_stream(world / "stream")[0]
    assert task.counts == {"train": 0, "test": 0}
    assert list(task.path.glob("*.tar")) == []
    totals = manifest_of(world / "stream")["totals"]
    assert {name: one["images"] for name, one in totals.items()} == {"train": 24, "test": 12}
    assert len(open_task(world / "buffers/00").split("train")) == 0
    assert manifest_of(world / "buffers/00")["buffer"]["items"] == {}
    assert problems(world) == []


def test_the_same_image_in_another_pair_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def pair(number: int) -> Any:
        found = make_pair(number)
        return found._replace(image=make_pair(0).image) if number < 2 else found

    task = make_task(tmp_path / "task", 4, pair=pair)
    stored = pair_at(task, 0)
    ended = run_program(capfd, "forget", "--key", stored.key, task, "--dry-run")
    assert "the same image is also in 1 other pair" in ended.err
    other = pair_at(task, 1)
    assert receipt_of(capfd, "--key", stored.key, task)["same_image"] == 1
    assert receipt_of(capfd, "--sha256", stored.sha256, task)["keys"] == [other.key]
    assert (tmp_path / "receipts/0002.json").exists()
    assert traces(tmp_path, stored) == traces(tmp_path, other) == []
    assert list(check(task, deep=True)) == []


@pytest.mark.slow
def test_a_stream_of_which_a_task_is_gone(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The stream knows the ids of its tasks, whatever becomes of them."""
    stream, own = world / "stream", content(world / "stream/00-part-0")
    shutil.rmtree(stream / "03-part-3")
    listed = manifest_of(stream)["tasks"][3]
    for row in (0, 0):
        pair = pair_at(stream / "00-part-0", row)
        receipt_of(capfd, "--key", pair.key, world)
        assert traces(world, pair) == []
        found = manifest_of(stream)
        assert found["tasks"][3] == listed
        task = manifest_of(stream / "00-part-0")
        listed_first = found["tasks"][0]
        assert (task["id"], listed_first["id"], listed_first["content"]) == (
            *(own, own, task["content"]),
        )
    shutil.rmtree(stream / "00-part-0")
    receipt_of(capfd, "--key", pair_at(stream / "01-part-1", 0).key, world)
    assert [one["path"] for one in manifest_of(stream)["tasks"] if "id" in one] == [
        *("00-part-0", "01-part-1"),
    ]


@pytest.mark.slow
def test_skipped_repeats_of_a_pair_are_no_longer_listed(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    rows = [
        {"place": "row 3", "detail": f"repeats an earlier pair (key {pair.key})"},
        {"place": f"member a/{pair.source_key}.jpg", "detail": "no caption"},
        {"place": "member 000009.jpg", "detail": "no caption"},
    ]
    listed = world / "stream/skipped.ndjson"
    listed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    receipt_of(capfd, "--key", pair.key, world)
    assert [json.loads(line) for line in listed.read_text().splitlines()] == rows[2:]


@pytest.mark.slow
def test_artifacts_inside_of_a_stream_are_rewritten_too(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    (world / "buffers").rename(world / "stream/buffers")
    (world / "stream/notes").mkdir()
    (world / "stream/notes/mine.txt").write_text("my notes")
    receipt_of(capfd, "--key", pair.key, world / "stream")
    assert traces(world / "stream", pair) == []
    assert problems(world, ("stream", "stream/buffers/00", "stream/buffers/03")) == []
    assert (world / "stream/notes/mine.txt").read_text() == "my notes"
    assert not list((world / "stream").rglob(".*"))


def test_a_damaged_artifact_is_refused_before_anything_changes(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    with (world / "buffers/02/train.parquet").open("ab") as file:
        file.write(b"x")
    before = tree_bytes(world)
    ended = run_program(capfd, "forget", "--key", pair.key, world, "-q")
    check_refused(ended, "forget", 3, world / "buffers/02/train.parquet")
    assert tree_bytes(world) == before


def test_an_output_that_is_being_written_is_refused(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair, ready = held_pair(world), tmp_path / "ready"

    def hold(_: int) -> None:
        with Output(world / "new").locked():
            ready.touch()
            wait_until((tmp_path / "done").exists)

    child = start_child(hold)
    wait_until(ready.exists)
    words = ["forget", "--key", pair.key, world, "-q"]
    check_refused(run_program(capfd, *words), "forget", 4, world / "new", "being written")
    (tmp_path / "done").touch()
    assert exit_code_of(child) == 0
    assert run_program(capfd, *words).code == 0


def test_the_words_of_a_request_are_not_recorded(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = world / "stream/00-part-0"
    add_column(task, "customer", [["somebody's name"]] * 8)
    make_partial(world, "unrelated", {"tasks": [content(world / "stream/03-part-3")]})
    words = ["forget", "--where", "customer=somebody's name", world, "-q"]
    child = start_child(lambda _: run_line(words, tmp_path / "log"))
    assert exit_code_of(child) == 0
    assert b"somebody" not in b"".join(tree_bytes(world).values())


def test_links_and_foreign_files_are_named_as_not_searched(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (world / "link").symlink_to(tmp_path / "elsewhere")
    (world / "inside").symlink_to(world / "stream")
    pq.write_table(pa.table({"a": [1]}), world / "source.parquet")
    ended = run_program(capfd, "forget", "--key", held_pair(world).key, world, "-q")
    assert f"not searched: 1 symbolic link, such as {world}/link" in ended.err
    assert f"1 file that vlcpctl did not write, such as {world}/source.parquet" in ended.err
