"""Read typed tables: Parquet, the Arrow streams of `datasets` (`save_to_disk`), and our own tasks.

Images are bytes, structs of bytes and path, or paths. `datasets` stores classes as numbers, whose
names are in the schema's metadata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.source import (
    FLAW,
    GROUP_BYTES,
    GROUP_RATIO,
    IMAGE,
    MOST_COLUMNS,
    Row,
    Start,
    Wants,
)
from vlcpctl.data.sources.tars import ERROR, STATUS, failed_download
from vlcpctl.data.sources.values import Typed, kept_text
from vlcpctl.data.tasks.samples import FAILED_DOWNLOAD
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.inputs import arrow_source, open_regular, parse_json, reading
from vlcpctl.files.stores import whole

_BATCH_BYTES = 8 * 2**20  # four times faster than 32 MB: the allocator reuses its pages
_BATCH_ROWS = 500
_WORTH_A_THREAD = 2**14  # bytes per row; for smaller rows the thread costs more than it saves
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream
_ZEROS = re.compile(r"\.0+(?!\d)")  # a fraction that only shows the unit of a column of times
_FEATURES = b"huggingface"  # the metadata in which `datasets` writes its own types
T = TypeVar("T")


# -- Parquet


def parquet(path: Path, wants: Wants) -> Iterator[Row]:
    """The rows of a Parquet file. Raises BadInput if it is damaged."""
    with _parquet_file(path) as file, reading(path):
        schema = file.schema_arrow
        failures = [STATUS, ERROR] if {STATUS, ERROR} <= set(schema.names) else []
        names = list(dict.fromkeys([*wants.names, *failures]))
        row_bytes = _row_bytes(path, file)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
        batches = file.iter_batches(size, columns=names, use_threads=False)
        if row_bytes >= _WORTH_A_THREAD:
            batches = _prefetched(batches)
        for number, record in _rows(path, schema, batches):
            if failures and (why := failed_download(record[STATUS], record[ERROR])):
                record[FLAW] = FAILED_DOWNLOAD, why
            yield number, record


def begin_parquet(path: Path) -> Start:
    """The columns and rows of a Parquet file. Raises BadInput if it cannot be read."""
    with _parquet_file(path) as file:
        return Start(_names(path, file.schema_arrow), rows=int(file.metadata.num_rows))


def _parquet_file(path: Path) -> pq.ParquetFile:
    source = arrow_source(path)  # refuses what would block
    with reading(path):
        # The default reads the whole file ahead: 360 MB of memory instead of 14.
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=2**20)


def _row_bytes(path: Path, file: pq.ParquetFile) -> int:
    """Decompressed bytes of a row, in the row group with the largest rows.

    Raises BadInput for a row group that decompresses to more than the limits allow.
    """
    most, stored = 1, path.stat().st_size
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if group.total_byte_size > max(GROUP_BYTES, GROUP_RATIO * stored):
            raise BadInput(
                f"{path}, of {stored} bytes, decompresses to {group.total_byte_size} bytes in a "
                f"row group, the limit is {GROUP_BYTES}; write it with smaller row groups"
            )
        most = max(most, group.total_byte_size // max(group.num_rows, 1))
    return most


def _prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items, each fetched one ahead, as reading and decompressing run beside Python.

    >>> list(_prefetched(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


# -- Arrow streams


def arrow(path: Path, wants: Wants) -> Iterator[Row]:
    """The rows of an Arrow stream, mapped into memory. Raises BadInput if it is damaged."""
    with _stream(path) as (source, stream):
        yield from _rows(path, stream.schema, _pieces(path, source, stream, list(wants.names)))


def begin_arrow(path: Path) -> Start:
    """The columns and rows of an Arrow stream, by the headers of its batches.

    Raises BadInput if it is damaged.
    """
    with _stream(path) as (source, stream):
        names = _names(path, stream.schema)
        return Start(names, rows=sum(one.num_rows for one in _batches(path, source, stream)))


@contextmanager
def _stream(path: Path) -> Iterator[tuple[pa.MemoryMappedFile, pa.RecordBatchStreamReader]]:
    """The file, of which a batch of any size takes no memory until it is used, and its stream."""
    with open_regular(path) as file:  # refuses what would block
        file.seek(-min(len(_END), os.fstat(file.fileno()).st_size), os.SEEK_END)
        end = file.read()
    if end.endswith(b"ARROW1"):
        raise BadInput(
            f"{path} is an Arrow file for random access, not the stream that datasets writes; "
            "convert it to Parquet"
        )
    if end != _END:
        raise BadInput(f"{path} has no end-of-stream mark: it is truncated or not an Arrow stream")
    with pa.memory_map(str(whole(path))) as source, reading(path):
        yield source, pa.ipc.open_stream(source)


def _batches(
    path: Path, source: pa.MemoryMappedFile, stream: pa.RecordBatchStreamReader
) -> Iterator[pa.RecordBatch]:
    """The record batches, whose values have not been checked."""
    row = 0
    while True:
        with reading(path, f"{path} is damaged after row {row}"):
            try:
                batch = stream.read_next_batch()
            except StopIteration:
                break
        yield batch
        row += batch.num_rows
    if source.tell() != source.size():
        raise BadInput(f"{path} is damaged after row {row}: it continues after its end")


def _pieces(
    path: Path, source: pa.MemoryMappedFile, stream: pa.RecordBatchStreamReader, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Slices of the batches, whatever their sizes, in which no offset points outside its buffer."""
    row = 0
    for batch in _batches(path, source, stream):
        with reading(path, f"{path} is damaged after row {row}"):
            part = batch.select(names)
            part.validate(full=True)
        row += len(part)
        yield from (part.slice(at, _BATCH_ROWS) for at in range(0, len(part), _BATCH_ROWS))


# -- tasks


def task(path: Path, wants: Wants) -> Iterator[Row]:
    """The images of a split of a task, given by its index, with their captions and kept columns.

    Raises BadInput if the task is damaged.
    """
    split = open_task(path.parent).split(path.stem)
    for number, record in parquet(path, wants):
        for name, value in record.items():
            if name != "captions" and isinstance(value, list) and len(value) == 1:
                record[name] = value[0]  # a kept column, which may decide the task or split
        if wants.images:
            record[IMAGE] = split.image(int(number))
        record["split"] = path.stem
        yield number, record


# -- values


def _names(path: Path, schema: pa.Schema) -> list[str]:
    with reading(path):
        names = [str(name) for name in schema.names]
        "".join(names).encode()  # names that are not UTF-8 are decoded here
    if len(names) > MOST_COLUMNS:
        raise BadInput(f"{path} has {len(names)} columns, the limit is {MOST_COLUMNS}")
    return names


def _rows(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    classes = _class_names(path, schema)
    row = 0
    while True:
        with reading(path, f"{path} is damaged after row {row}"):
            batch = next(batches, None)
        if batch is None:
            return
        names = batch.schema.names
        columns = []
        for name, column in zip(names, batch.columns, strict=True):
            kind = shortened(" ".join(str(column.type).split()))
            rows = f"rows {row} to {row + len(batch) - 1}"
            with reading(path, f"{path}, column {shortened(name)!r} ({kind}), {rows}"):
                found = _values(column)
            if name in classes:
                found = [_class_of(value, classes[name]) for value in found]
            columns.append(found)
        for values in zip(*columns, strict=True) if columns else repeat((), len(batch)):
            yield row, dict(zip(names, values, strict=True))
            row += 1


def _values(column: pa.Array) -> list[Any]:
    """The values of a column: text, integers, `Typed`, bytes, or lists or dicts of these."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Equal values are one object, however many rows.
        known = _values(column.dictionary)
        return [None if one is None else known[one] for one in column.indices.to_pylist()]
    if pa.types.is_binary_view(kind):
        return _values(column.cast(pa.large_binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # Slices of Arrow's own buffer, so that images are not copied.
        offsets, data = column.buffers()[1:]
        of = np.int64 if pa.types.is_large_binary(kind) else np.int32
        ends = np.frombuffer(offsets, of, len(column) + 1, column.offset * np.dtype(of).itemsize)
        view = memoryview(b"" if data is None else data).cast("B")
        found: list[Any] = [view[start:end] for start, end in pairwise(ends.tolist())]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = column.offsets.to_pylist()
        first = ends[0]  # the offsets of a slice count from the start of what it is a slice of
        inner = _values(column.values.slice(first, ends[-1] - first))
        found = [inner[start - first : end - first] for start, end in pairwise(ends)]
    elif pa.types.is_struct(kind):
        parts = {
            field.name: _values(part)
            for field, part in zip(kind, column.flatten(), strict=True)
            if not pa.types.is_null(field.type)
        }
        found = [
            dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)
        ]
    else:
        return _scalars(column)
    if not column.null_count:
        return found
    there = column.is_valid().to_pylist()
    return [one if valid else None for one, valid in zip(found, there, strict=True)]


def _scalars(column: pa.Array) -> list[Any]:
    """Text and integers as they are; of numbers, dates and truth values `Typed`; NaN is missing."""
    kind = column.type
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)
    if not is_number and not pa.types.is_boolean(kind) and not is_time:
        return list(column.to_pylist())
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    texts = column.cast(pa.string()).to_pylist()
    values = column.cast(pa.float64()).to_pylist() if is_number else texts
    kept = texts
    if pa.types.is_timestamp(kind):
        kept = [text and _ZEROS.sub("", text) for text in texts]
    elif pa.types.is_floating(kind):  # Arrow writes 1e9 for 10**9
        kept = list(map(kept_text, values))
    return [
        None if text is None else Typed(value, text, short)
        for value, text, short in zip(values, texts, kept, strict=True)
    ]


def _class_names(path: Path, schema: pa.Schema) -> Mapping[str, Sequence[str]]:
    """The names of the classes of each column of labels, or of lists of labels.

    Raises BadInput if the metadata of the schema cannot be read.
    """
    text = (schema.metadata or {}).get(_FEATURES)
    if text is None:
        return {}
    try:
        described = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{path}: the types of its columns are not readable: {error}") from error
    features = _inside(_inside(described, "info"), "features")
    found = {}
    for field in schema:
        feature, kind = features.get(field.name), field.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            # Written as [label], or as an object with it.
            feature = feature[0] if isinstance(feature, list) else _inside(feature, "feature")
            kind = kind.value_type
        label = feature if isinstance(feature, dict) else {}
        names = label.get("names") if label.get("_type") == "ClassLabel" else None
        is_texts = isinstance(names, list) and all(isinstance(one, str) for one in names)
        if names and is_texts and pa.types.is_integer(kind):
            found[field.name] = names
    return found


def _class_of(label: Any, names: Sequence[str]) -> Any:
    """The name of a class; None for a number without one, such as the usual -1."""
    if isinstance(label, list):
        return [_class_of(one, names) for one in label]
    return names[label] if label is not None and 0 <= label < len(names) else None


def _inside(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
