"""The file of rows beside an index: it reads as the index does, and is not trusted unread."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from support.edits import record_again

from vlcpctl.core.errors import BadInput
from vlcpctl.data.loading.replay import UNION
from vlcpctl.data.loading.sampler import PairSampler
from vlcpctl.data.tasks import rows as rows_module
from vlcpctl.data.tasks.index import SCHEMA, IndexWriter, index_batches, wide
from vlcpctl.data.tasks.index_checks import MOST_CAPTION_BYTES, row_problems
from vlcpctl.data.tasks.rows import RowsBuilder, is_of, map_batch, map_rows, write_rows
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.files.digests import digests_of
from vlcpctl.files.manifest import SEAL, seal_of
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_pair, make_task

ROWS = 9
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


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
    labels = [None if code < 0 else names[code] for code in codes.tolist()]
    return [
        list(split.keys),
        [split.captions(row) for row in rows],
        [split.caption_count(row) for row in rows],
        split.caption_counts().tolist(),
        [split.image(row) for row in rows],
        labels,
        *(split.column(name) for name in SCHEMA.names),
    ]


def recorded_again(task: Path) -> Path:
    """The task, with a manifest that has the digest of its rows as they are now."""
    path = task / "task.json"
    manifest = json.loads(path.read_text())
    del manifest[SEAL]
    manifest["splits"]["train"]["rows"] = digests_of(task, ["train.arrow"])["train.arrow"]
    path.write_text(json.dumps({**manifest, SEAL: seal_of(manifest)}))
    return task


def refusal(task: Path) -> str:
    with pytest.raises(BadInput) as refused:
        opened(task)
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def test_a_split_reads_what_its_index_has(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    assert len(list(task.glob("*.tar"))) > 1
    table = pq.read_table(task / "train.parquet")
    assert everything(opened(task))[6:] == [table[name].to_pylist() for name in SCHEMA.names]
    assert not list(check(task, deep=True))


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


def many(path: Path, count: int, captions: Callable[[int], list[str]]) -> Path:
    """An index of made-up rows, and its file of rows."""
    writer = IndexWriter(path)
    for number in range(count):
        label = None if number % 3 else f"label {number % 50}"
        shard = f"train-{number // 1000:06d}.tar"
        place = (shard, 512 * number, number + 1)
        own = (f"{number:032x}", None, *place, captions(number), label, "task", 1, 1)
        writer.add((*own, f"{number:064x}"))
    writer.close()
    return path


def test_rows_that_are_collected_on_disk_are_those_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def captions(number: int) -> list[str]:
        return [f"caption {number} \u00e9"] * (number % 4)

    index = many(tmp_path / "a.parquet", 7000, captions)
    monkeypatch.setattr(rows_module, "_KEPT_BYTES", 100)
    other = many(tmp_path / "b.parquet", 7000, captions)
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    assert index.read_bytes() == other.read_bytes()
    names = ["a.arrow", "a.parquet", "b.arrow", "b.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    rows, first = map_batch(tmp_path / "a.arrow"), 0
    for batch in index_batches(index):
        assert is_of(rows.slice(first, len(batch)), batch)
        assert not is_of(rows.slice(first + 1, len(batch)), batch)
        first += len(batch)
    assert first == len(rows) == 7000


def test_parts_of_a_batch_are_collected_as_the_whole(tmp_path: Path) -> None:
    index = many(tmp_path / "a.parquet", 30, lambda number: [f"caption {number}"] * (number % 4))
    (whole,) = index_batches(index)
    builder = RowsBuilder()
    for first in range(0, 30, 7):
        builder.add(whole.slice(first, 7))
    assert builder.finish().equals(map_batch(tmp_path / "a.arrow"))
    builder.close()


def test_an_index_without_rows_has_an_empty_file(tmp_path: Path) -> None:
    many(tmp_path / "a.parquet", 0, lambda _: [])
    rows = map_rows(tmp_path / "a.arrow")
    assert (len(rows), rows.lists.tolist(), rows.ends.tolist()) == (0, [0], [0])
    empty = open_task(make_task(tmp_path / "task", splits={"train": 0, "test": 2}))
    assert len(empty.split("train")) == 0
    assert empty.split("train").caption_counts().tolist() == []


def test_opening_holds_few_bytes_of_each_row(tmp_path: Path) -> None:
    """No Python object is held for a row, which a forked worker would copy when it is used."""
    count = 30_000
    task = task_at(tmp_path / "task")
    row = pq.read_table(task / "train.parquet").to_pylist()[0]
    writer = IndexWriter(task / "train.parquet")
    for number in range(count):
        row |= {"key": f"{number:032x}", "captions": [f"a caption of {number}" * 5]}
        writer.add([row[name] for name in SCHEMA.names])
    writer.close()
    path = task / "task.json"
    manifest = json.loads(path.read_text())
    del manifest[SEAL]
    names = {"index": "train.parquet", "rows": "train.arrow"}
    listed = {name: digests_of(task, [file])[file] for name, file in names.items()}
    manifest["splits"]["train"] |= {**listed, "images": count}
    path.write_text(json.dumps({**manifest, SEAL: seal_of(manifest)}))
    opened(task)  # imports
    tracemalloc.start()
    try:
        split = opened(task)
        sampler = PairSampler([split], None, batch_size=16, captions="one", replay=UNION, seed=0)
        sampler.plan(0)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The window of the shuffle has 65,536 rows at most: 8 bytes each, which do not grow.
    assert held / count < 30
    assert peak / count < 120


def edited(change: Change) -> Callable[[Path], object]:
    """The edit that replaces the rows by others."""

    def edit(path: Path) -> None:
        changed = change(pa.ipc.open_file(path.read_bytes()).get_batch(0))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, changed.schema) as writer:
            writer.write_batch(changed)

    return edit


def with_column(name: str, values: Callable[[pa.Array], pa.Array]) -> Callable[[Path], object]:
    """The edit that replaces a column of the rows, whose type may become another."""

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index(name)
        found = values(batch[name])
        field = batch.schema.field(place).with_type(found.type)
        arrays = [found if at == place else one for at, one in enumerate(batch.columns)]
        return pa.record_batch(arrays, schema=batch.schema.set(place, field))

    return edited(change)


def first(value: object) -> Callable[[pa.Array], pa.Array]:
    """The values of a column with another first one."""

    def change(values: pa.Array) -> pa.Array:
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        changed = pa.array([value, *plain.to_pylist()[1:]], plain.type)
        return changed.dictionary_encode() if plain is not values else changed

    return change


def without_utf8(path: Path) -> None:
    data = path.read_bytes()
    place = data.index(b"thing number")
    path.write_bytes(data[:place] + b"\xff" + data[place + 1 :])


def compressed(path: Path) -> None:
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, batch.schema, options=options) as writer,
    ):
        writer.write_batch(batch)


def written_twice(path: Path) -> None:
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)


def of_another_index(path: Path) -> None:
    many(path.with_name("other.parquet"), ROWS + 1, lambda _: ["x"])
    path.with_name("other.arrow").replace(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "cannot read"),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size - 100), "cannot read"),
    "half of it": (lambda path: os.truncate(path, path.stat().st_size // 2), "cannot read"),
    "text": (lambda path: path.write_text("rows"), "cannot read"),
    "not UTF-8": (without_utf8, "cannot read"),
    "other columns": (
        edited(lambda batch: batch.select(["key", "size"])),
        "does not have the columns of an index",
    ),
    "another type": (
        with_column("offset", lambda values: values.cast(pa.float64())),
        "does not have the columns of an index",
    ),
    "two batches": (written_twice, "does not have the columns of an index"),
    "fewer rows": (edited(lambda batch: batch.slice(0, 3)), "images is 3, task.json says 9"),
    "of another index": (of_another_index, "images is 10, task.json says 9"),
    "a null key": (with_column("key", first(None)), "column 'key' contains nulls"),
    "a null size": (with_column("size", first(None)), "column 'size' contains nulls"),
    "no shard": (with_column("shard", first(None)), "column 'shard' contains nulls"),
    "null captions": (with_column("captions", first(None)), "column 'captions' contains nulls"),
    "a null caption": (with_column("captions", first([None])), "a text is null"),
    "no caption": (with_column("captions", first([])), "row 0 (key "),
    "a huge caption": (
        with_column("captions", first(["x" * MOST_CAPTION_BYTES])),
        "bytes of captions",
    ),
    "a shard elsewhere": (with_column("shard", first("../x.tar")), "which task.json does not list"),
    "a negative offset": (with_column("offset", first(-5)), "its offset is negative"),
    "a huge offset": (with_column("offset", first(2**62)), "past the end of its shard"),
    "no size": (with_column("size", first(0)), "its size is less than 1"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_rows_are_refused_by_digest_and_by_what_they_have(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    task = task_at(tmp_path / "task")
    path = task / "train.arrow"
    damage(path)
    assert refusal(task).startswith(f"{path} has changed since it was written")
    assert any(str(path) in one for one in check(task, deep=False))
    recorded_again(task)
    found = refusal(task)
    assert str(path) in found
    assert said in found
    assert found.isprintable()
    assert any(str(path) in one for one in check(task, deep=True))


def test_compressed_rows_are_read(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    wanted = everything(opened(task))
    compressed(task / "train.arrow")
    assert everything(opened(recorded_again(task))) == wanted


@pytest.mark.parametrize(
    "change",
    [
        with_column("captions", first(["another caption"])),
        with_column("label", first("another label")),
        with_column("sha256", first(b"x" * 32)),
        with_column("key", first(b"x" * 16)),
        edited(lambda batch: batch.take(pa.array([1, 0, *range(2, ROWS)]))),
    ],
)
def test_check_compares_the_rows_with_the_index(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    task = task_at(tmp_path / "task")
    change(task / "train.arrow")
    recorded_again(task)
    said = f"{task / 'train.arrow'}: does not have the rows of train.parquet; make the task again"
    assert said in list(check(task, deep=True))


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "dangling link"])
def test_a_file_of_rows_that_is_none_is_named_and_never_waited_for(
    tmp_path: Path, kind: str
) -> None:
    task = task_at(tmp_path / "task")
    path = task / "train.arrow"
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    assert str(path) in refusal(task)
    assert any(str(path) in one for one in check(task, deep=False))


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_at(tmp_path_factory.mktemp("fuzzed") / "task")


def _check_damaged_bytes(task: Path, data: st.DataObject) -> None:
    """Whatever bytes are changed and recorded again: rows are read, or refused in one line."""
    path = task / "train.arrow"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    said = ""
    try:
        split = opened(recorded_again(task))
        assert all(split.captions(row) and len(split.keys[row]) == 32 for row in range(len(split)))
        split.labels()
    except BadInput as error:
        said = str(error)
    finally:
        # A new file: the old one may still be mapped.
        path.unlink()
        path.write_bytes(whole)
        recorded_again(task)
    assert not said or str(task) in said
    assert len(said.splitlines()) <= 1


@hypothesis.settings(max_examples=150)
@hypothesis.given(data=st.data())
def test_forged_rows_are_read_or_refused(fuzzed: Path, data: st.DataObject) -> None:
    _check_damaged_bytes(fuzzed, data)


@pytest.mark.slow
@hypothesis.settings(max_examples=10_000)
@hypothesis.given(data=st.data())
def test_forged_rows_are_read_or_refused_long(fuzzed: Path, data: st.DataObject) -> None:
    _check_damaged_bytes(fuzzed, data)


def test_columns_of_more_than_2_gib_are_checked_and_searched(tmp_path: Path) -> None:
    """An array of type list<string> has at most 2 GiB of text; a column of chunks has more."""
    index = many(tmp_path / "a.parquet", 4, lambda number: [f"caption {number}"])
    table = pq.read_table(index)
    longest = "x" * (MOST_CAPTION_BYTES - 1)
    chunk = pa.array([[longest]] * 4, SCHEMA.field("captions").type)
    wide = table.set_column(
        table.schema.get_field_index("captions"), SCHEMA.field("captions"), chunk
    )
    times = 2**31 // (4 * MOST_CAPTION_BYTES) + 1
    huge = pa.concat_tables([wide] * times)  # which shares the memory of its chunks
    with pytest.raises(pa.ArrowInvalid):
        huge["captions"].combine_chunks()
    sizes = {"train-000000.tar": 10**6}
    assert list(row_problems(huge, index, sizes)) == []


def test_the_wide_types_are_large_ones() -> None:
    kinds = {
        pa.string(): pa.large_string(),
        pa.list_(pa.string()): pa.large_list(pa.large_string()),
        pa.int32(): pa.int32(),
    }
    for kind, large in kinds.items():
        assert wide(pa.schema([pa.field("c", kind)])).field("c").type == large


def test_rows_with_an_old_kind_of_key_are_named(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    path = task / "train.parquet"
    for name, value in {"key": "A" * 32, "sha256": "0" * 63}.items():
        table = pq.read_table(path)
        values = pa.array([*table[name].to_pylist()[:-1], value])
        place = table.schema.get_field_index(name)
        pq.write_table(table.set_column(place, table.schema.field(place), values), path)
        with pytest.raises(BadInput, match=f"its {name} is not"):
            _ = opened(record_again(task)).table
        pq.write_table(table, path)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    task = task_at(tmp_path / "task")
    before = {path.name: path.stat().st_mtime_ns for path in (task, *task.iterdir())}
    everything(opened(task))
    list(check(task, deep=True))
    assert {path.name: path.stat().st_mtime_ns for path in (task, *task.iterdir())} == before


def test_the_keys_of_a_batch_are_views_of_16_bytes(tmp_path: Path) -> None:
    split = opened(task_at(tmp_path / "task"))
    assert split.keys.raw.shape == (ROWS, 16)
    assert split.keys.raw.dtype == np.uint8
    batch = map_batch(split.path.with_suffix(".arrow"))
    write_rows(tmp_path / "again.arrow", batch)
    assert (tmp_path / "again.arrow").read_bytes() == (
        split.path.with_suffix(".arrow").read_bytes()
    )
