"""Read typed tables: Parquet, the Arrow streams of `datasets` (`save_to_disk`), and our own tasks.

Images are bytes, structs of bytes and path, or paths. `datasets` stores classes as numbers, whose
names are in the schema's metadata.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    ROW_BYTES,
    Row,
    Start,
    Typed,
    Wants,
)
from vlcpctl.data.sources.tars import ERROR, STATUS, failed_download
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
    with _mapped(path) as source, reading(path):
        stream = pa.ipc.open_stream(source)
        yield from _rows(path, stream.schema, _pieces(path, source, stream, wants.names))


def begin_arrow(path: Path) -> Start:
    """The columns and rows of an Arrow stream, by the headers of its batches.

    Raises BadInput if it is damaged.
    """
    with _mapped(path) as source, reading(path):
        stream = pa.ipc.open_stream(source)
        names = _names(path, stream.schema)
        return Start(names, rows=sum(one.num_rows for one in _batches(path, source, stream)))


def _mapped(path: Path) -> pa.MemoryMappedFile:
    """The file, of which a batch of any size takes no memory until it is used."""
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
    return pa.memory_map(str(whole(path)))


def _batches(
    path: Path, source: pa.MemoryMappedFile, stream: pa.ipc.RecordBatchStreamReader
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
    path: Path,
    source: pa.MemoryMappedFile,
    stream: pa.ipc.RecordBatchStreamReader,
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Slices of the batches, whatever their sizes, in which no offset points outside its buffer."""
    row = 0
    for batch in _batches(path, source, stream):
        with reading(path, f"{path} is damaged after row {row}"):
            part = batch.select(list(names))
            part.validate(full=True)
        row += len(part)
        left = [part]
        while left:
            part = left.pop()
            half = len(part) // 2
            if half and (len(part) > _BATCH_ROWS or part.nbytes > _BATCH_BYTES):
                left += [part.slice(half), part.slice(0, half)]
                continue
            texts = [field.name for field in part.schema if not _holds_bytes(field.type)]
            if part.nbytes > ROW_BYTES and (size := part.select(texts).nbytes) > ROW_BYTES:
                raise BadInput(f"{path} has a row with {size} bytes besides its image")
            yield part


def _holds_bytes(kind: pa.DataType) -> bool:
    return bool(_is_binary(kind) or pa.types.is_struct(kind))


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
            where = (
                f"{path}, column {shortened(name)!r} ({kind}), rows {row} to {row + len(batch) - 1}"
            )
            with reading(path, where):
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
    if _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return list(column.to_pylist())
    if _is_binary(kind):
        return _views(column.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = column.offsets.to_pylist()
        first = ends[0]  # the offsets of a slice count from the start of what it is a slice of
        inner = _values(column.values.slice(first, ends[-1] - first))
        return [
            inner[start - first : end - first] if there else None
            for (start, end), there in zip(
                pairwise(ends), column.is_valid().to_pylist(), strict=True
            )
        ]
    if pa.types.is_struct(kind):
        fields = [field.name for field in kind if not pa.types.is_null(field.type)]
        parts = dict(zip([field.name for field in kind], column.flatten(), strict=True))
        rows = zip(*(_values(parts[name]) for name in fields), strict=True)
        found = [dict(zip(fields, values, strict=True)) for values in rows]
        return _with_nulls(found, column)
    return _typed(column)


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [one if there else None for one, there in zip(values, valid, strict=True)]


def _typed(column: pa.Array) -> list[Any]:
    """Numbers, dates and truth values; NaN is missing."""
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
        kept = [str(int(x)) if x is not None and _is_whole(x) else repr(x) for x in values]
    return [
        None if text is None else Typed(*three, short)
        for text, three, short in zip(texts, zip(values, texts, strict=True), kept, strict=True)
    ]


def _is_whole(number: float) -> bool:
    """Whether a number is whole, and the only whole one that its float stands for."""
    return number.is_integer() and abs(number) < 2**53


def _views(column: pa.Array) -> list[Any]:
    """The bytes of each row, as slices of Arrow's own buffer, so that images are not copied."""
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets, data = column.buffers()
    if data is None:
        return _with_nulls([b""] * len(column), column)
    start = column.offset * np.dtype(kind).itemsize
    ends = np.frombuffer(offsets, kind, len(column) + 1, start).tolist()
    view = memoryview(data).cast("B")
    return _with_nulls([view[start:end] for start, end in pairwise(ends)], column)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


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
        texts = [one for one in names if isinstance(one, str)] if isinstance(names, list) else []
        if texts and texts == names and pa.types.is_integer(kind):
            found[field.name] = texts
    return found


def _class_of(label: Any, names: Sequence[str]) -> Any:
    """The name of a class; None for a number without one, such as the usual -1."""
    if isinstance(label, list):
        return [_class_of(one, names) for one in label]
    return names[label] if label is not None and 0 <= label < len(names) else None


def _inside(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
