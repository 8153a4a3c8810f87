"""`vlcpctl forget`: nothing of a pair is left, all else stays, and a receipt lists what it did."""

from __future__ import annotations

import json
import os
import shlex
import shutil
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
from support.marks import mostly_slow
from support.processes import killed_before
from support.program import check_refused, run_program

from vlcpctl.data.tasks.task import open_stream, open_task
from vlcpctl.deletion.request import DeletionRequest, forget
from vlcpctl.deletion.selectors import parse
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_pair, make_task

CHECKPOINTS = ("run/00", "run/01", "apart/00")
KEPT, PARTS = ".other.vlcpctl/replaced/other", ".sharded.vlcpctl/partial"

# Each kind of file that has something of a pair, and what a deletion does with what it is a part
# of. Rows and checkpoints have nothing that could be found.
KINDS = {
    "stream/00-part-0/train.parquet": "rewritten",
    "stream/00-part-0/train.arrow": "rewritten",
    "stream/00-part-0/train-000000.tar": "rewritten",
    "stream/skipped.ndjson": "rewritten",
    "buffers/00/train.parquet": "rewritten",
    "buffers/00/train-000000.tar": "rewritten",
    "buffers/01/train-000000.tar": "rewritten",  # one file with that of buffers/00
    "buffers/03/features.parquet": "rewritten",
    "ranks.parquet": "rewritten",
    "report/summary.json": "rewritten",
    "report/report.html": "rewritten",
    "report/report.md": "rewritten",
    "report/week.html": "rewritten",
    "report/forgotten/00.html": "rewritten",
    "week/trimmed.parquet": "rewritten",
    "targets/samples.parquet": "deleted",
    "emb/metadata/metadata_0.parquet": "deleted",
    "texts/texts.parquet": "deleted",
    "cache": "deleted",
    "exports/hf": "deleted",
    "exports/clip-benchmark": "deleted",
    f"{KEPT}/train-000000.tar": "deleted",
}
# Vectors of pairs, which have no bytes of these.
VECTORS = ("targets/images.npy", "emb/img_emb/img_emb_0.npy", PARTS)


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


def actions(receipt: dict[str, Any], world: Path) -> dict[str, str]:
    """What was done, by path."""
    found = receipt["artifacts"]
    return {Path(one["path"]).relative_to(world).as_posix(): one["action"] for one in found}


def problems(world: Path) -> list[str]:
    """What `check --deep` finds."""
    names = ["stream", "other", *CHECKPOINTS, *(f"buffers/0{number}" for number in range(4))]
    return [problem for name in names for problem in check(world / name, deep=True)]


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a task or stream."""
    file = path / ("stream.json" if path.name == "stream" else "task.json")
    return dict(json.loads(file.read_text()))


@pytest.mark.parametrize("which", [held_pair, evicted_pair])
def test_nothing_of_a_pair_is_left(
    which: Callable[[Path], StoredPair], world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = which(world)
    before, vectors = traces(world, pair), [one.tobytes() for one in vectors_of(world, pair)]
    if which is held_pair:
        missing = [kind for kind in KINDS if not any(one.startswith(kind) for one in before)]
        assert not missing, "each kind of file has the pair"
        assert any(vectors[0] in data for data in tree_bytes(world).values())
        assert [name for name in VECTORS if not (world / name).exists()] == []
    models = {name: tree_bytes(world / name) for name in CHECKPOINTS}
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert traces(world, pair) == []
    assert not any(one in data for data in tree_bytes(world).values() for one in vectors)
    assert not [name for name in VECTORS if (world / name).exists()]
    assert problems(world) == []
    assert {name: tree_bytes(world / name) for name in CHECKPOINTS} == models
    assert not list(world.rglob(".*")), "no hidden directory is left"
    assert (receipt["keys"], receipt["images"]) == ([pair.key], [pair.sha256])
    done = actions(receipt, world)
    for name, action in KINDS.items() if which is held_pair else ():
        found = {done[path] for path in done if f"{name}/".startswith(f"{path}/")}
        assert (found or {done[path] for path in done if path.startswith(name)}) == {action}
    learned = {Path(one["path"]).relative_to(world).as_posix() for one in receipt["checkpoints"]}
    assert (learned, receipt["unknown"]) == ({"run/00", "run/01"}, [])


def test_a_receipt_has_ids_before_and_after_and_no_text(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    before = {name: manifest_of(world / name)["content"] for name in ("stream", "buffers/02")}
    ended = run_program(capfd, "forget", "--source-key", pair.source_key, world, "-q")
    assert (ended.code, ended.out) == (0, f"{world}/receipts/0001.json\n")
    text = (world / "receipts/0001.json").read_text()
    assert pair.captions[0] not in text
    assert f'"{pair.source_key}"' not in text
    receipt = json.loads(text)
    assert receipt["state"] == "finished"
    found = {Path(one["path"]).relative_to(world).as_posix(): one for one in receipt["artifacts"]}
    for name, was in before.items():
        assert found[name]["before"]["content"] == was == manifest_of(world / name)["id"]
        assert found[name]["after"]["content"] == manifest_of(world / name)["content"] != was
    assert found["stream/00-part-0"]["removed"] == {"train": 1}
    assert found["stream"]["removed"] == {"skipped": 2, "tasks": 1}
    assert found["buffers/02"]["kind"] == "buffer"
    second = receipt["second_search"]
    assert (second["pairs"], second["time"] >= receipt["started"]) == (0, True)


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
    identity = manifest_of(world / "buffers/01")["identity"]
    ranks = pq.read_table(world / "ranks.parquet").to_pylist()
    other = pair_at(world / "stream/00-part-0", 7)
    assert other.key != pair.key
    pages = {path: path.read_bytes() for path in (world / "report").rglob("*.html")}
    receipt_of(capfd, "--key", pair.key, world)
    assert {name: rest(name) for name in names} == before
    assert (world / "buffers/00/train-000000.tar").stat().st_nlink == links > 1
    assert manifest_of(world / "buffers/01")["identity"] == identity
    kept = [row for row in ranks if row["query"] != pair.key]
    for row in kept:
        if row["wrong"] == pair.key:
            row.update(wrong=None, wrong_caption=None)
    assert pq.read_table(world / "ranks.parquet").to_pylist() == kept
    for path, text in pages.items():  # bytes that are not UTF-8, and ends of lines
        lines = [line for line in text.split(b"\n") if pair.key.encode() not in line]
        assert path.read_bytes() == b"\n".join(lines) != text
    (examples,) = json.loads((world / "report/summary.json").read_text())["forgotten"]["tasks"]
    assert len(examples) == 7
    skipped = (world / "stream/skipped.ndjson").read_text().splitlines()
    assert (len(skipped), other.key in skipped[-1]) == (14, True)
    assert len(open_stream(world / "stream")) == 4


@pytest.mark.parametrize(
    "name", mostly_slow(["targets", "emb", "texts", "exports/hf"], kept=["targets"])
)
def test_what_was_deleted_is_made_again_by_the_line_that_is_named(
    name: str, made: Path, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    receipt = receipt_of(capfd, "--key", pair.key, world)
    (entry,) = (one for one in receipt["artifacts"] if one["path"] == str(world / name))
    assert (entry["action"], (world / name).exists()) == ("deleted", False)
    words = shlex.split(entry["again"])
    ended = run_program(capfd, *(word.replace(str(made), str(world)) for word in words[1:]))
    assert ended.code == 0, ended.err
    assert list(check(world / name, deep=True)) == traces(world, pair) == []


@pytest.mark.parametrize("gone", ["run/00", "stream"])
def test_what_cannot_be_made_again_is_rewritten(
    gone: str, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A teacher that is gone, or the task."""
    pair = held_pair(world)
    table = pq.read_table(world / "targets/samples.parquet")
    keys = np.repeat(table["key"].to_pylist(), table["captions"].to_numpy())
    before = np.load(world / "targets/texts.npy")[keys != pair.key]
    vectors = [one.tobytes() for one in vectors_of(world, pair)]
    of_task = ["exports", "week", ".sharded.vlcpctl"]
    for name in (gone, *(of_task if gone == "stream" else [])):
        shutil.rmtree(world / name)
    receipt = receipt_of(capfd, "--key", pair.key, world)
    np.testing.assert_array_equal(np.load(world / "targets/texts.npy"), before)
    done = actions(receipt, world)
    assert (done["targets"], done["emb"]) == ("rewritten", "rewritten")
    assert traces(world, pair) == []
    assert not any(one in data for data in tree_bytes(world).values() for one in vectors)
    assert [one for name in ("targets", "emb") for one in check(world / name, deep=True)] == []


def test_a_dry_run_lists_all_of_it_and_changes_nothing(
    world: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With paths as they were given."""
    monkeypatch.chdir(world.parent)
    pair, before = held_pair(world), tree_bytes(world)
    ended = run_program(capfd, "forget", "--sha256", pair.sha256, world.name, "--dry-run")
    assert ended.code == 0, ended.err
    assert "rewrite buffer world/buffers/03: 1 train\n" in ended.out
    assert "depends on them: checkpoint world/run/01 " in ended.out
    assert "apart" not in ended.out
    assert str(world) not in ended.out.replace("-o " + str(world), "") or "made" in ended.out
    assert receipt_of(capfd, "--sha256", pair.sha256, world, "--dry-run")["state"] == "pending"
    assert tree_bytes(world) == before


@pytest.mark.parametrize("change", mostly_slow(sorted({*range(1, 320, 3), 45}), [45]))
def test_a_killed_deletion_is_completed_by_the_same_command(
    change: int, world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before any change of names; the condition is a column that derived data does not have."""
    pair = held_pair(world)
    (world / "exports/hf/README.md").write_text("mine")
    request = DeletionRequest(conditions=parse(source_key=[pair.source_key]), paths=[world])
    if killed_before(change, lambda: forget(request)):
        receipt_of(capfd, "--source-key", pair.source_key, world, "--dry-run")
    receipt = receipt_of(capfd, "--source-key", pair.source_key, world)
    assert traces(world, pair) == []
    assert problems(world) == []
    assert not [path for path in world.rglob(".*") if path.is_file() or any(path.iterdir())]
    # The last kill is between two removals, of the lock and of its directory, which stays empty.
    assert [path.name for path in (world / "receipts").glob("[!.]*")] == ["0001.json"]
    assert [path.name for path in (world / "exports/hf").iterdir()] == ["README.md"]
    assert (receipt["state"], receipt["keys"]) == ("finished", [pair.key])
    assert len(receipt["checkpoints"]) == 2
    done = actions(receipt, world)
    assert (len(done), list(done.values()).count("rewritten")) == (18, 9)
    rewritten = [one for one in receipt["artifacts"] if one["action"] == "rewritten"]
    contents = [one for one in rewritten if one["kind"] in {"task", "buffer", "stream"}]
    assert all(one["after"] != one["before"] for one in contents)


def test_hard_links_elsewhere_are_refused(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair, tar = held_pair(world), world / "buffers/01/train-000000.tar"
    before, words = tree_bytes(world), ["forget", "--key", pair.key, "-q"]
    check_refused(run_program(capfd, *words, world / "buffers/01"), "forget", 3, tar)
    os.link(tar, tmp_path / "copy.tar")
    check_refused(run_program(capfd, *words, world), "forget", 3, "hard links")
    (tmp_path / "copy.tar").rename(world / "copy.tar")
    check_refused(run_program(capfd, *words, world), "forget", 3, world / "copy.tar")
    (world / "copy.tar").unlink()
    tar = world / "stream/00-part-0/train-000000.tar"
    tar.rename(tmp_path / "moved.tar")
    tar.symlink_to(tmp_path / "moved.tar")
    check_refused(run_program(capfd, *words, world), "forget", 3, tar, tmp_path / "moved.tar")
    (tmp_path / "moved.tar").replace(tar)
    assert tree_bytes(world) == before
    assert run_program(capfd, *words, world).code == 0
    assert traces(world, pair) == []


def make_partial(world: Path, out: str, identity: dict[str, Any]) -> Path:
    """The state of an unfinished command."""
    partial = Output(world / out).open_partial()
    (partial / "identity.json").write_text(json.dumps(identity))
    return partial


def test_an_unfinished_run_on_the_data_is_refused(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["forget", "--key", held_pair(world).key, world, "-q"]
    for name, field in (("stream/00-part-0", "tasks"), ("buffers/01", "buffer")):
        content = manifest_of(world / name)["content"]
        about = {"run": "x", field: [content] if field == "tasks" else content}
        partial = make_partial(world, "run/02", {"semantic": about, "numeric": {}})
        before = tree_bytes(world)
        check_refused(run_program(capfd, *words), "forget", 4, partial, "finish it or remove it")
        assert tree_bytes(world) == before
    kept = Output(world / "run/02").replaced.parent / "partial"  # where --force puts it aside
    kept.parent.mkdir(exist_ok=True)
    partial.rename(kept)
    content = manifest_of(world / "stream/03-part-3")["content"]
    other = make_partial(world, "run/03", {"semantic": {"run": "x", "tasks": [content]}})
    assert run_program(capfd, *words).code == 0
    assert (kept.exists(), other.exists()) == (False, True)


def test_models_that_depend_on_pairs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is only evaluated is in no lineage."""
    task = make_task(tmp_path / "task", splits={"train": 4, "val": 2, "test": 2})
    assert run_program(capfd, "train-step", task, "-o", tmp_path / "model", *TRAIN).code == 0
    for split, found in (("test", []), ("val", [str(tmp_path / "model")])):
        receipt = receipt_of(capfd, "--key", pair_at(task, 0, split).key, tmp_path)
        assert [one["path"] for one in receipt["checkpoints"]] == found


def test_models_whose_data_is_not_there_are_listed_as_unknown(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that continues a model which has learned the pair from a buffer depends on it, too."""
    pair = held_pair(world)
    later = (world / "stream/02-part-2", "-o", world / "run/02", "--previous", world / "run/01")
    assert run_program(capfd, "train-step", *later, *NEXT).code == 0
    for name in ("stream", "week"):
        shutil.rmtree(world / name)
    receipt = receipt_of(capfd, "--key", pair.key, world)
    assert [Path(one["path"]).name for one in receipt["checkpoints"]] == ["01", "02"]
    unknown = [Path(one["path"]).relative_to(world).as_posix() for one in receipt["unknown"]]
    others = ["apart/00", "exports/clip-benchmark", "exports/hf", "run/00"]
    assert unknown == [PARTS, *others]
    assert "not known: 5 artifacts" in str(receipt["notes"])


def test_an_export_from_before_a_deletion_is_deleted_by_the_next(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was elsewhere, and its task does not have the pair any more; what people wrote stays."""
    pair, out = held_pair(world), world / "exports/clip-benchmark"
    templates = "zeroshot_classification_templates.txt"
    (out / "LICENSE").write_text("mine")
    (out / templates).write_text("a sketch of a {c}.\n")
    out.rename(tmp_path / "away")
    receipt_of(capfd, "--key", pair.key, world)
    (tmp_path / "away").rename(out)
    assert traces(world, pair) != []
    receipt_of(capfd, "--key", pair.key, world)
    assert {path.name for path in out.iterdir()} == {"LICENSE", templates}
    assert traces(world, pair) == []


def test_columns_select_pairs(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A kept column is in the index of the task only; the buffers have the pairs by their keys."""
    task = world / "stream/00-part-0"
    keys = open_task(task).split("train").keys
    add_column(task, "customer", [["4711", "b"] if row < 2 else ["c"] for row in range(len(keys))])
    ended = run_program(capfd, "forget", "--where", "client=4711", world, "-q")
    check_refused(ended, "forget", 3, "--keep-columns", "customer")
    pairs = [pair_at(task, row) for row in range(2)]
    receipt = receipt_of(capfd, "--where", "customer=4711", world)
    assert receipt["keys"] == sorted(keys[:2])
    assert (receipt["selectors"][0]["pairs"], "4711" in str(receipt)) == (2, False)
    assert "40 pairs without the column" in str(receipt["notes"])
    assert [trace for pair in pairs for trace in traces(world, pair)] == []
    assert problems(world) == []
    assert pq.read_table(task / "train.parquet")["customer"].to_pylist() == [["c"]] * 6


def test_samples_that_no_index_lists_are_not_left_out(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The task and the buffer that listed it are gone; its tar is still that of a later buffer."""
    pair = evicted_pair(world)
    for path in world.iterdir():
        if path.name != "buffers":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(world / "buffers/00")
    assert traces(world, pair)
    words = ["--source-key", pair.source_key]
    assert receipt_of(capfd, *words, world, "--dry-run")["keys"] == [pair.key]
    # A column other than those in the tars cannot tell: everything evicted is removed.
    add_column(world / "buffers/03", "customer", [["a"]] * 6)
    receipt = receipt_of(capfd, "--where", "customer=a", world)
    assert "evicted samples; removed, too" in str(receipt["notes"])
    assert pair.key not in receipt["keys"]
    assert traces(world, pair) == []
    buffers = [world / f"buffers/0{number}" for number in (1, 2, 3)]
    assert [one for buffer in buffers for one in check(buffer, deep=True)] == []


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
    stored, other = pair_at(task, 0), pair_at(task, 1)
    receipt = receipt_of(capfd, "--key", stored.key, task)
    assert receipt["notes"] == ["not removed: 1 other pair with the same image"]
    assert receipt_of(capfd, "--sha256", stored.sha256, task)["keys"] == [other.key]
    assert (tmp_path / "receipts/0002.json").exists()
    assert traces(tmp_path, stored) == traces(tmp_path, other) == []
    assert list(check(task, deep=True)) == []


@pytest.mark.slow
def test_a_stream_of_which_a_task_is_gone(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The stream knows the ids of its tasks, whatever becomes of them."""
    stream = world / "stream"
    own = manifest_of(stream / "00-part-0")["content"]
    shutil.rmtree(stream / "03-part-3")
    listed = manifest_of(stream)["tasks"][3]
    for row in (0, 0):
        pair = pair_at(stream / "00-part-0", row)
        receipt_of(capfd, "--key", pair.key, world)
        assert traces(world, pair) == []
        found, task = manifest_of(stream), manifest_of(stream / "00-part-0")
        assert found["tasks"][3] == listed
        first = found["tasks"][0]
        assert (task["id"], first["id"], first["content"]) == (own, own, task["content"])
    shutil.rmtree(stream / "00-part-0")
    receipt_of(capfd, "--key", pair_at(stream / "01-part-1", 0).key, world)
    rewritten = [one["path"] for one in manifest_of(stream)["tasks"] if "id" in one]
    assert rewritten == ["00-part-0", "01-part-1"]


@pytest.mark.slow
def test_artifacts_inside_of_a_stream_are_rewritten_too(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pair = held_pair(world)
    (world / "buffers").rename(world / "stream/buffers")
    (world / "stream/mine.txt").write_text("my notes")
    (world / "ranks.parquet").rename(world / "stream/00-part-0/ranks.parquet")
    receipt_of(capfd, "--key", pair.key, world / "stream")
    assert traces(world / "stream", pair) == []
    names = ("stream", "stream/buffers/00", "stream/buffers/03")
    assert [one for name in names for one in check(world / name, deep=True)] == []
    assert (world / "stream/mine.txt").read_text() == "my notes"
    assert not list((world / "stream").rglob(".*"))


def test_links_and_foreign_files_are_named_as_not_searched(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (world / "link").symlink_to(tmp_path / "elsewhere")
    (world / "inside").symlink_to(world / "stream")
    pq.write_table(pa.table({"a": [1]}), world / "source.parquet")
    theirs = world / "cache of another program"
    (theirs / "data").mkdir(parents=True)
    (theirs / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n# theirs\n")
    (theirs / "data/file").touch()
    ended = run_program(capfd, "forget", "--key", held_pair(world).key, world, "-q")
    assert (theirs / "data/file").exists()
    assert f"not searched: 1 symbolic link, such as {world}/link\n" in ended.err
    assert "2 files that vlcpctl did not write, such as " in ended.err
