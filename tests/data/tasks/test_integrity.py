"""A task is opened only if its manifest, its index and its tars are what was written."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.edits import (
    INDEX_EDITS,
    MANIFEST_EDITS,
    Edit,
    column,
    edit_json,
    manifest,
    record_again,
    reseal,
)
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import BadInput
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream as split_pairs
from vlcpctl.data.tasks.index import SCHEMA, ContentId, IndexWriter, schema_with
from vlcpctl.data.tasks.tars import with_more_values
from vlcpctl.data.tasks.task import open_stream, open_task
from vlcpctl.files import inputs
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_stream, make_task

SHARD = "train-000000.tar"
OPEN = Path("/proc/self/fd")  # of this process
# Manifests that vlcpctl does not write; in others only the seal is wrong.
IMPOSSIBLE_MANIFESTS = {
    "slug leaves the directory": "is not the name of a directory",
    "slug with an escape code": "is not the name of a directory",
    "slug is a number": ".slug`",
    "step is text": ".step`",
    "step is huge": ".step`",
    "step is negative": ".step`",
    "step is true": ".step`",
    "splits null": ".splits`",
    "splits a list": ".splits`",
    "a split is a number": ".splits[...]`",
    "an unknown split": ".splits",
    "shard outside": "is not the name of a file",
    "shards are numbers": ".splits[...].shards[0]`",
    "labels are numbers": ".labels[0]`",
}
IMPOSSIBLE: dict[str, tuple[Edit, str]] = {
    "negative offset": (column("offset", -5), "within its tar"),
    "huge offset": (column("offset", 2**62), "within its tar"),
    "negative size": (column("size", -1), "within its tar"),
    "no size": (column("size", 0), "within its tar"),
    "size beyond the shard": (column("size", 2**30), "within its tar"),
    "shard with NUL": (column("shard", "a\0b"), "which task.json does not list"),
    "shard outside": (column("shard", "../x.tar"), "which task.json does not list"),
    "shard is the directory": (column("shard", "."), "which task.json does not list"),
    "shard with an escape code": (column("shard", "\x1b[31m"), "which task.json does not list"),
    "null caption": (column("captions", ["a", None]), "a caption is null"),
    "no caption": (column("captions", []), "has no caption"),
    "a key in capitals": (column("key", "A" * 32), "a key is not 32 hexadecimal digits"),
    "a short digest": (column("sha256", "0" * 63), "a sha256 is not 64 hexadecimal digits"),
}


def first_problem(task: Path) -> str:
    with pytest.raises(BadInput) as refused:
        _ = open_task(task).split("train").table
    return str(refused.value)


@pytest.mark.parametrize("edit", INDEX_EDITS.values(), ids=INDEX_EDITS)
def test_an_edited_index_is_not_opened(tmp_path: Path, edit: Edit) -> None:
    task = make_task(tmp_path / "task", 5)
    edit(task)
    assert first_problem(task).startswith(f"{task / 'train.parquet'} has changed since")
    assert any("train.parquet has changed" in one for one in check(task, deep=False))


@pytest.mark.parametrize("edit", MANIFEST_EDITS.values(), ids=MANIFEST_EDITS)
def test_an_edited_manifest_is_refused_and_found_by_check(tmp_path: Path, edit: Edit) -> None:
    task = make_task(tmp_path / "task", 5)
    edit(task)
    assert first_problem(task).startswith(str(task / "task.json"))
    for deep in (False, True):
        assert any(one.startswith(str(task / "task.json")) for one in check(task, deep=deep))


@pytest.mark.parametrize(("name", "said"), IMPOSSIBLE_MANIFESTS.items(), ids=IMPOSSIBLE_MANIFESTS)
def test_a_manifest_that_cannot_be_is_refused_with_its_field(
    tmp_path: Path, name: str, said: str
) -> None:
    task = make_task(tmp_path / "task", 5)
    MANIFEST_EDITS[name](task)
    reseal(task / "task.json")
    found = first_problem(task)
    assert found.startswith(f"{task / 'task.json'}: ")
    assert said in found
    assert found.isprintable()


@pytest.mark.parametrize(("edit", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_row_that_cannot_be_is_named(tmp_path: Path, edit: Edit, said: str) -> None:
    task = make_task(tmp_path / "task", 5)
    edit(task)
    found = first_problem(record_again(task))
    assert str(task / "train.parquet") in found
    assert said in found
    assert found.isprintable()
    assert any(str(task) in one for one in check(task, deep=True))


@pytest.mark.parametrize("name", ["train.parquet", SHARD])
@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "dangling link", "cut short"])
def test_a_file_that_is_none_is_named_and_never_waited_for(
    tmp_path: Path, name: str, kind: str
) -> None:
    task = make_task(tmp_path / "task", 5)
    path = task / name
    data = path.read_bytes()
    path.unlink()
    if kind == "cut short":
        path.write_bytes(data[:-512])
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    assert str(path) in first_problem(task)
    assert any(name in one for one in check(task, deep=True))


def test_a_split_without_images_is_opened_but_not_required(tmp_path: Path) -> None:
    task = open_task(make_task(tmp_path / "task", splits={"train": 0, "test": 2}))
    assert len(task.split("train")) == 0
    with pytest.raises(BadInput, match="no images in split 'train'"):
        task.require("train")


def test_a_stream_with_an_edited_task_or_list_is_refused(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 3, 4, test=0)
    assert len(open_stream(stream)) == 3

    def refused(edit: Edit, said: str) -> None:
        other = shutil.copytree(stream, tmp_path / "other")
        edit(other)
        with pytest.raises(BadInput, match=said):
            open_stream(other)
        assert any(True for _ in check(other, deep=False))
        shutil.rmtree(other)

    def listed(*, seals: bool = True, **fields: object) -> Edit:
        def edit(path: Path) -> None:
            edit_json(path / "stream.json", lambda value: value["tasks"][1].update(fields))
            if seals:
                reseal(path / "stream.json")

        return edit

    refused(listed(path="../other/01-part-1"), "not a directory in the stream")
    refused(listed(path="00-part-0"), "is not the task listed in stream.json")
    refused(listed(content="0" * 32, seals=False), "its seal differs")
    refused(listed(content=3), r".tasks\[1\].content`")
    refused(listed(splits=None), "splits")

    def exchange(path: Path) -> None:
        (path / "01-part-1").rename(path / "x")
        (path / "02-part-2").rename(path / "01-part-1")
        (path / "x").rename(path / "02-part-2")

    refused(exchange, "is not the task listed in stream.json")
    refused(lambda path: (path / "01-part-1/task.json").unlink(), "01-part-1")


def test_the_content_id_is_of_keys_and_labels_in_order() -> None:
    found = ContentId()
    keys, labels = ["ab", "c", "d\u00e9"], ["x", None, ""]
    plain = hashlib.blake2b("ab:1:x\nc\nd\u00e9:0:\n".encode(), digest_size=16)
    chunks = [pa.chunked_array([values[:1], values[1:]], pa.string()) for values in (keys, labels)]
    found.add(*[pa.chunked_array([], pa.string())] * 2)
    found.add(*chunks)
    assert found.hexdigest() == plain.hexdigest()


@pytest.mark.skipif(not OPEN.is_dir(), reason="needs /proc")
def test_a_split_of_many_tars_keeps_few_of_them_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "most_open", lambda: 3)
    splits = [
        open_task(make_task(tmp_path / f"{number}", 6, shard_bytes=1)).split("train")
        for number in range(2)
    ]
    before = len(list(OPEN.iterdir()))
    for _ in range(2):
        for split in splits:
            assert all(split.image(row) for row in range(6))
            assert len(list(OPEN.iterdir())) <= before + 3
    del split, splits
    assert len(list(OPEN.iterdir())) < before


# -- kept columns


KEPT_EDITS: dict[str, tuple[Edit, str]] = {
    "a null among the values": (column("date", ["x", None]), "a value of 'date' is null"),
    "not in the index": (manifest(kept_columns=["customer"]), "has no column 'customer'"),
    "listed as a number": (manifest(kept_columns=[1]), ".kept_columns[0]`"),
    "listed twice": (manifest(kept_columns=["date", "date"]), "kept_columns has 'date' twice"),
    "the index's own": (manifest(kept_columns=["sha256"]), "or it is the index's own"),
}


def keeping(place: Path) -> Path:
    source = write_parquet(place / "p.parquet", rows(6))
    given = {"by": "source", "holdout": "none", "keep_columns": "date"}
    split_pairs(SplitOptions(sources=[str(source)], **given), place / "out")
    return place / "out" / "00-p"


@pytest.mark.parametrize(("edit", "said"), KEPT_EDITS.values(), ids=KEPT_EDITS)
def test_kept_columns_that_cannot_be_are_named(tmp_path: Path, edit: Edit, said: str) -> None:
    task = keeping(tmp_path)
    assert not list(check(task, deep=True))
    edit(task)
    record_again(task)
    with pytest.raises(BadInput) as refused:
        _ = open_task(task).split("train").table
    assert said in str(refused.value)
    try:
        problems = list(check(task, deep=False))
    except BadInput as error:
        problems = [str(error)]
    assert any(said in problem for problem in problems)


def test_a_rewritten_index_has_the_bytes_of_one_written_at_once(tmp_path: Path) -> None:
    def key(number: int) -> str:
        return f"{number:032x}"

    def write(name: str, kept: list[tuple[str, ...]]) -> IndexWriter:
        writer = IndexWriter(tmp_path / name, schema_with(["customer"]))
        for number, values in enumerate(kept):
            own = (key(number), None, "t", number, 1, ["c"], None, "task", 1, 1, "ab" * 32)
            writer.extend([(*own, values)])
        writer.close()
        return writer

    first = write("a.parquet", [(), ("x",)] * 3000)
    more = {key(0): (("b", "a"),), key(5999): (("a", "x"),)}
    changed = with_more_values(first, lambda keys: {key: more[key] for key in keys if key in more})
    whole = write("b.parquet", [("a", "b"), *[("x",), ()] * 2999, ("a", "x")])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert changed.content.hexdigest() == whole.content.hexdigest()
    assert (first.lacking, changed.lacking) == ({"customer": 3000}, {"customer": 2999})
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    names = ["a.arrow", "a.parquet", "b.arrow", "b.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.names == [*SCHEMA.names, "customer"]
