"""The Parquet index of a split: where each image is in its tar, its captions and metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.rows import RowsWriter
from vlcpctl.files.inputs import arrow_source

# One row per image. `offset` and `size` locate the image's bytes in its shard. Captions are read
# from the index; the .txt members of the tars repeat them for programs that do not read the index.
FIELDS = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("source_key", pa.string()),
    pa.field("shard", pa.string(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("size", pa.int32(), nullable=False),
    pa.field("captions", pa.list_(pa.string()), nullable=False),
    pa.field("label", pa.string()),
    pa.field("task", pa.string(), nullable=False),
    pa.field("width", pa.int32(), nullable=False),
    pa.field("height", pa.int32(), nullable=False),
    pa.field("sha256", pa.string(), nullable=False),
]
SCHEMA = pa.schema(FIELDS)

# The index of a buffer also records the task an item came from, and the order of eviction.
BUFFER_SCHEMA = pa.schema(
    [
        *FIELDS,
        pa.field("origin_task", pa.string()),
        pa.field("rank", pa.int64()),
        pa.field("order", pa.float64()),
    ]
)

# Columns of the sources (--keep-columns) follow those of the program: per image the distinct values
# of all source rows that became this image, as text, sorted.
_KEPT = pa.list_(pa.string())

SPLITS = ("train", "val", "test", "query", "gallery")

ROWS_PER_GROUP = 2048
_ROWS_AT_ONCE = 1 << 14

_SPLIT_ALIASES = {
    "validation": "val",
    "valid": "val",
    "dev": "val",
    "restval": "train",
    "training": "train",
}


def schema_with(kept: Sequence[str], schema: pa.Schema = SCHEMA) -> pa.Schema:
    """The schema of an index with these kept columns, after its own."""
    return pa.schema([*schema, *map(_kept_field, kept)])


def _kept_field(name: str) -> pa.Field:
    return pa.field(name, _KEPT, nullable=False)


class IndexWriter:
    """Writes an index and its file of rows, with at most about one row group in memory.

    `content` is the content id of the rows flushed so far; it is complete after `close`.
    `lacking` counts the rows without a value in each kept column.
    """

    def __init__(self, path: Path, schema: pa.Schema = SCHEMA) -> None:
        self.path, self.schema = path, schema
        self.content = ContentId()
        own = set(BUFFER_SCHEMA.names)
        self.lacking = {name: 0 for name in schema.names if name not in own}
        self._rows: list[Sequence[Any]] = []
        self._writer: pq.ParquetWriter | None = None
        self._mapped = RowsWriter(path)
        self._is_table = False  # rather than rows, of which the last group may be empty

    def add(self, row: Sequence[Any]) -> None:
        """Append a row: its values in the order of the schema's columns."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append several rows; see `add`."""
        self._rows.extend(rows)
        while len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows, the footer and the file of rows."""
        if self._writer is None or not self._is_table:
            self._flush()
        if self._writer is not None:
            self._writer.close()
        self._mapped.close()

    def abandon(self) -> None:
        """Close the file without writing the remaining rows, after a failure."""
        self._mapped.abandon()
        if self._writer is not None:
            self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table of the index's schema, which may be `wide`.

        Not to be mixed with `add`.
        """
        self._is_table = True
        for start in range(0, len(table), ROWS_PER_GROUP):
            group = table.slice(start, ROWS_PER_GROUP).cast(self.schema).combine_chunks()
            for batch in group.to_batches():
                self._write(batch)

    def _flush(self) -> None:
        rows, self._rows = self._rows[:ROWS_PER_GROUP], self._rows[ROWS_PER_GROUP:]
        columns = list(zip(*rows, strict=True)) or [() for _ in self.schema]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)
        ]
        self._write(pa.record_batch(arrays, schema=self.schema))

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            # Only columns with repeated values get a dictionary: keys and hashes are unique.
            self._writer = pq.ParquetWriter(
                self.path,
                self.schema,
                use_dictionary=["shard", "label", "task"],
                write_statistics=False,
                write_page_checksum=True,
            )
        self.content.add_columns(*(pa.chunked_array([batch[name]]) for name in ("key", "label")))
        for name in self.lacking:
            self.lacking[name] += (
                pc.sum(pc.equal(pc.list_value_length(batch[name]), 0)).as_py() or 0
            )
        self._writer.write_batch(batch)
        self._mapped.add(batch)


def write_index(path: Path, table: pa.Table, schema: pa.Schema) -> str:
    """Write the rows of a table as an index with its file of rows; returns their content id."""
    index = IndexWriter(path, schema)
    index.write(table)
    index.close()
    return index.content.hexdigest()


def read_index(path: Path, kept: Sequence[str] = ()) -> pa.Table:
    """Read an index; every column of `FIELDS` is present, of its type and without nulls.

    So are the columns `kept`, which task.json lists as kept from the sources. Raises BadInput if
    the file cannot be read or a column does not fit.
    """
    try:
        table = pq.read_table(arrow_source(path))
        for field in (*FIELDS, *map(_kept_field, kept)):
            table = _with_checked(table, field, path)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(unreadable(path, error)) from error
    return table


def read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of an index as it has them. Raises BadInput if it lacks one or is damaged."""
    try:
        with pq.ParquetFile(arrow_source(path), pre_buffer=False) as file:
            for name in names:
                if name not in file.schema_arrow.names:
                    raise BadInput(f"{path} has no column {name!r}; run 'vlcpctl check'")
            return file.read(list(names))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(unreadable(path, error)) from error


def read_keys(path: Path) -> Keys:
    """The column "key" of an index, without what is not a key.

    Raises BadInput if the file lacks the column or cannot be read.
    """
    try:
        with pq.ParquetFile(arrow_source(path), pre_buffer=False) as file:
            _require(file.schema_arrow.empty_table(), "key", path)
            batches = file.iter_batches(_ROWS_AT_ONCE, columns=["key"], use_threads=False)
            return Keys.joined(
                [Keys.among_texts(batch["key"].cast(pa.string())) for batch in batches]
            )
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(unreadable(path, error)) from error


def index_batches(path: Path, fields: Iterable[pa.Field] = SCHEMA) -> Iterator[pa.RecordBatch]:
    """The rows of an index in batches, with these columns, of these types.

    Raises BadInput as `read_index` does.
    """
    fields = list(fields)
    try:
        with pq.ParquetFile(arrow_source(path), pre_buffer=False) as file:
            empty = file.schema_arrow.empty_table()
            for field in fields:
                _require(empty, field.name, path)
            columns = [field.name for field in fields]
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
                table = pa.table(batch)
                for field in fields:
                    table = _with_checked(table, field, path)
                yield from table.select(columns).to_batches()
            for field in fields:
                _with_checked(empty, field, path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(unreadable(path, error)) from error


def rows_at(path: Path, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
    """The rows of an index at (n,) ascending numbers, read without holding the others.

    Raises BadInput as `read_index` does.
    """
    found, first = [], 0
    for batch in index_batches(path, schema):
        here = slice(*np.searchsorted(rows, (first, first + len(batch))))
        taken = batch.take(pa.array(rows[here] - first))
        found.append(pa.record_batch(taken.columns, schema=schema))
        first += len(batch)
    return pa.Table.from_batches(found, schema)


def _with_checked(table: pa.Table, field: pa.Field, path: Path) -> pa.Table:
    """The table with a column cast to its type.

    Other programs write equivalent types, such as large strings or lists with other field names.
    """
    _require(table, field.name, path)
    place, column = table.schema.get_field_index(field.name), table[field.name]
    if column.null_count and not field.nullable:
        raise BadInput(f"{path}: column {field.name!r} contains nulls; run 'vlcpctl check'")
    if column.type == field.type:
        return table
    try:
        return table.set_column(place, field, column.cast(field.type))
    except pa.ArrowException as error:
        found = f"column {field.name!r} is {column.type}, not {field.type}"
        raise BadInput(f"{path}: {found}; run 'vlcpctl check'") from error


def _require(table: pa.Table, name: str, path: Path) -> None:
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} has a column whose name is not text; run 'vlcpctl check'"
        ) from error
    if name not in names:
        raise BadInput(f"{path} has no column {name!r}; run 'vlcpctl check'")


class ContentId:
    """The content id of a split, computed incrementally: a hash of keys and labels, in order."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, keys: Iterable[str], labels: Iterable[str | None]) -> None:
        """Hash the next rows. A key is itself a hash of image and captions, so they are covered."""
        rows = [
            f"{key}{'' if label is None else f':{len(label)}:{label}'}\n"
            for key, label in zip(keys, labels, strict=True)
        ]
        self._digest.update("".join(rows).encode())

    def add_columns(self, keys: pa.ChunkedArray, labels: pa.ChunkedArray) -> None:
        """Hash the next rows, given as columns without invalid UTF-8; as `add`, but faster."""
        length = pc.utf8_length(labels).cast(pa.string())
        suffix = pc.binary_join_element_wise(":", length, ":", labels, "\n", "")
        lines = pc.binary_join_element_wise(keys, pc.fill_null(suffix, "\n"), "")
        for chunk in lines.chunks:
            # All lines without separators between them are the buffer of the texts.
            ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset :]
            if len(chunk):
                text = memoryview(chunk.buffers()[2])
                self._digest.update(text[ends[0] : ends[len(chunk)]])

    def hexdigest(self) -> str:
        """The content id of all rows added so far."""
        return self._digest.hexdigest()


def is_own_column(name: str) -> bool:
    """Whether the index of a task or buffer has a column of its own of this name."""
    return name in BUFFER_SCHEMA.names


def wide(schema: pa.Schema) -> pa.Schema:
    """The schema with large texts and lists.

    The chunks of a column can have more than the 2 GiB of text that fit one array of a smaller
    type, so what joins or reorders rows needs these.
    """
    return pa.schema([field.with_type(_wide(field.type)) for field in schema])


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_list(_wide(kind.value_type)) if pa.types.is_list(kind) else kind


def split_named(value: str | None) -> str | None:
    """The split that a value of --split-column stands for (dev is val), or None."""
    name = (value or "").strip().lower()
    name = _SPLIT_ALIASES.get(name, name)
    return name if name in SPLITS else None
