"""The file of rows beside an index reads as the index does, and is made again if it is not its."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from support.edits import edit_json, record_again, reseal
from support.processes import exit_code_of, start_child

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks import index
from vlcpctl.data.tasks.index import SCHEMA
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.files.digests import digests_of
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_pair, make_task

ROWS = 9


def pair(number: int) -> Pair:
    made = make_pair(number, captions=number % 3 + 1)
    captions = [f"{one} \u00e9\U0001f600" for one in made.captions]
    return made._replace(captions=captions, label=None if number % 4 == 0 else made.label)


def task_at(place: Path) -> Path:
    return make_task(place, ROWS, pair=pair, shard_bytes=9000)


def opened(task: Path) -> Split:
    return open_task(task).split("train")


def everything(split: Split) -> list[object]:
    rows = range(len(split))
    names, codes = split.labels()
    ends, text = split.texts()
    return [
        list(split.keys),
        [split.key(row) for row in rows],
        [split.captions(row) for row in rows],
        [str(text[start:end], "utf-8") for start, end in pairwise(ends.tolist())],
        [split.caption_count(row) for row in rows],
        split.caption_counts().tolist(),
        split.digests().tobytes(),
        [split.image(row) for row in rows],
        [None if code < 0 else names[code] for code in codes.tolist()],
        *(split.column(name) for name in SCHEMA.names),
    ]


def test_a_split_reads_what_its_index_has(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    assert len(list(task.glob("*.tar"))) > 1
    table = pq.read_table(task / "train.parquet")
    assert everything(opened(task))[9:] == [table[name].to_pylist() for name in SCHEMA.names]
    assert not list(check(task, deep=True))


def test_rows_in_several_batches_are_those_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = everything(opened(task_at(tmp_path / "one")))
    for every in (1, 4, ROWS):
        monkeypatch.setattr(index, "EVERY", every)
        task = task_at(tmp_path / f"{every}")
        assert pq.ParquetFile(task / "train.parquet").num_row_groups == -(-ROWS // every)
        assert everything(opened(task)) == whole
        lowest = open_task(task).split("train", 5)
        assert set(lowest.keys) == set(sorted(opened(task).keys)[:5])
        assert len(lowest.column("label")) == 5
        with pytest.raises(IndexError):
            lowest.key(5)


def test_the_rows_are_mapped_and_the_index_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_at(tmp_path / "task")
    monkeypatch.setattr(pq, "ParquetFile", None)
    monkeypatch.setattr(pq, "read_table", None)
    before = pa.total_allocated_bytes()
    split = opened(task)
    assert pa.total_allocated_bytes() - before < 1000
    assert split.captions(2) == pair(2).captions
    assert split.image(3) == pair(3).image
    with pytest.raises(ValueError, match="read-only"):
        split.keys.raw[0] = 0


def test_another_process_opens_a_split_again(tmp_path: Path) -> None:
    split = opened(task_at(tmp_path / "task"))
    sent = pickle.dumps(split)
    assert pair(1).captions[0].encode() not in sent
    assert everything(pickle.loads(sent)) == everything(split)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()  # the old one may still be mapped
    path.write_bytes(data.replace("\u00e9".encode(), "\u00e8".encode()))


def _of_another(path: Path) -> None:
    other = make_task(path.parent.parent / "other", ROWS)
    (other / path.name).unlink()
    opened(other)  # made again: no digest on record stands for it
    shutil.copyfile(other / path.name, path)


SPOILT: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "cut": _cut,
    "other bytes": _flip,
    "of another index": _of_another,
    "no Arrow": lambda path: path.write_text("text") and None,
    "a dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere"))[1],
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_of_rows_that_does_not_fit_is_made_again(tmp_path: Path, how: str) -> None:
    task = task_at(tmp_path / "task")
    whole = everything(opened(task))
    SPOILT[how](task / "train.arrow")
    assert not list(check(task, deep=True))
    assert everything(opened(task)) == whole
    assert everything(opened(task)) == whole
    assert not list(check(task, deep=True))
    assert sorted(path.name for path in task.iterdir() if "arrow" in path.name) == ["train.arrow"]


def test_check_compares_the_rows_that_are_read_with_the_index(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    path = task / "train.arrow"
    path.unlink()
    opened(task)  # made again, so that its digest is not on record
    _flip(path)
    assert any(str(path) in one for one in check(task, deep=True))


@pytest.mark.parametrize("kind", ["directory", "pipe", "nothing can be written"])
def test_where_no_file_of_rows_can_be_made_they_are_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    task = task_at(tmp_path / "task")
    whole, path = everything(opened(task)), task / "train.arrow"
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    if kind != "pipe":

        def refuse(**_: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(index.tempfile, "mkstemp", refuse)
    assert everything(opened(task)) == whole


def test_several_processes_make_it(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    (task / "train.arrow").unlink()

    def read(_: int) -> None:
        assert len(everything(opened(task))) > 1

    children = [start_child(read) for _ in range(4)]
    assert [exit_code_of(child) for child in children] == [0] * 4
    assert [path.name for path in task.glob("*arrow*")] == ["train.arrow"]
    assert not list(task.glob(".*"))


def _recorded(task: Path) -> Path:
    """The task, with a manifest that has the digest of its rows as they are now."""
    found = digests_of(task, ["train.arrow"])["train.arrow"]
    edit_json(task / "task.json", lambda value: value["splits"]["train"].update(rows=found))
    reseal(task / "task.json")
    return task


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_at(tmp_path_factory.mktemp("fuzzed") / "task")


@hypothesis.settings(max_examples=50)
@hypothesis.given(data=st.data())
def test_forged_rows_are_read_or_refused(fuzzed: Path, data: st.DataObject) -> None:
    """Whatever bytes are changed and recorded again: rows are read, or refused in one line."""
    path = fuzzed / "train.arrow"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))  # it may end the example
    path.unlink()  # a new file: the old one may still be mapped
    path.write_bytes(damaged[:end])
    said = ""
    try:
        split = opened(_recorded(fuzzed))
        assert all(split.captions(row) and len(split.keys[row]) == 32 for row in range(len(split)))
        split.labels()
    except BadInput as error:
        said = str(error)
    finally:
        path.unlink()
        path.write_bytes(whole)
        _recorded(fuzzed)
    assert not said or str(fuzzed) in said
    assert len(said.splitlines()) <= 1


def test_reading_writes_nothing(tmp_path: Path) -> None:
    task = record_again(task_at(tmp_path / "task"))
    before = {path.name: path.stat().st_mtime_ns for path in (task, *task.iterdir())}
    everything(opened(task))
    list(check(task, deep=True))
    assert {path.name: path.stat().st_mtime_ns for path in (task, *task.iterdir())} == before
    assert opened(task).keys.raw.dtype == np.uint8
