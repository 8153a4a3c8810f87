"""The Parquet index of a split: where each image lies in its tar, and all that is known of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput

# One row per image. `offset` and `size` are the bytes of the image inside its shard; the index owns
# the captions, and the .txt members of the tars repeat them for readers that do not know the index.
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

# A buffer's index says besides which task an item came from and in which order items are given up.
BUFFER_SCHEMA = pa.schema(
    [
        *FIELDS,
        pa.field("origin_task", pa.string()),
        pa.field("rank", pa.int64()),
        pa.field("order", pa.float64()),
    ]
)

SPLITS = ("train", "val", "test", "query", "gallery")

_ROWS_PER_GROUP = 2048
_KEY, _LABEL = SCHEMA.get_field_index("key"), SCHEMA.get_field_index("label")


class IndexWriter:
    """Writes an index row by row, holding at most one row group in memory."""

    def __init__(self, path: Path, schema: pa.Schema = SCHEMA) -> None:
        self.path, self.schema = path, schema
        self.content = ContentId()
        self._rows: list[Sequence[Any]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: Sequence[Any]) -> None:
        """Append a row, its values in the order of the schema."""
        self._rows.append(row)
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows."""
        self._rows.extend(rows)
        while len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        """Let go of the file without finishing it."""
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        if self._writer is None:
            # Hashes and keys never repeat: a dictionary of them would be built for nothing.
            self._writer = pq.ParquetWriter(
                self.path,
                self.schema,
                use_dictionary=["shard", "label", "task"],
                write_statistics=False,
                write_page_checksum=True,
            )
        rows, self._rows = self._rows[:_ROWS_PER_GROUP], self._rows[_ROWS_PER_GROUP:]
        columns = list(zip(*rows, strict=True)) or [() for _ in self.schema]
        self.content.add(columns[_KEY], columns[_LABEL])
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self.schema))


def read_index(path: Path) -> pa.Table:
    """An index, with every column that a split needs, of its type and without holes."""
    try:
        table = pq.read_table(path)
        for field in FIELDS:
            table = _with_checked(table, field, path)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    return table


def _with_checked(table: pa.Table, field: pa.Field, path: Path) -> pa.Table:
    """Other programs write other types for the same: large strings, or lists of other names."""
    place = table.schema.get_field_index(field.name)
    if place < 0:
        raise BadInput(f"{path} has no column {field.name!r}; run 'vlcpctl check'")
    column = table[field.name]
    if column.null_count and not field.nullable:
        raise BadInput(f"{path}: column {field.name!r} has holes; run 'vlcpctl check'")
    if column.type == field.type:
        return table
    try:
        return table.set_column(place, field, column.cast(field.type))
    except pa.ArrowException as error:
        found = f"column {field.name!r} is {column.type}, not {field.type}"
        raise BadInput(f"{path}: {found}; run 'vlcpctl check'") from error


class ContentId:
    """The id of a split's data, built row by row: its keys in order, each with its label."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, keys: Iterable[str], labels: Iterable[str | None]) -> None:
        """Count the next rows in. A key names image and captions, so nothing else needs hashing."""
        rows = [
            f"{key}{'' if label is None else f':{len(label)}:{label}'}\n"
            for key, label in zip(keys, labels, strict=True)
        ]
        self._digest.update("".join(rows).encode())

    def hexdigest(self) -> str:
        """The id of all rows so far."""
        return self._digest.hexdigest()
