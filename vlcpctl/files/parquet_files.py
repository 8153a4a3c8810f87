"""Parquet files that vlcpctl writes, with checksums of pages, and JSON about them in the footer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.files.inputs import arrow_source, reading


def table_writer(sink: Path | BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of a file with these columns, compressed by zstd."""
    return pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)


def write_about(writer: pq.ParquetWriter, key: bytes, about: object) -> None:
    """Store a value as JSON in the footer of a file that is being written, under this key."""
    writer.add_key_value_metadata({key: json.dumps(about, ensure_ascii=False)})


def read_about(path: Path, key: bytes, what: str = "") -> tuple[bytes | None, int]:
    """The JSON that is stored under a key in a file's footer, None if nothing is, and the rows.

    Raises BadInput, with `what` or "cannot read PATH", if it is not a Parquet file.
    """
    source = arrow_source(path)
    with reading(path, what):
        found = pq.read_metadata(source)
    return (found.metadata or {}).get(key), int(found.num_rows)


def read_columns(path: Path, names: Sequence[str] | None = None, **how: Any) -> pa.Table:
    """These columns, or all, of a table; `how` is as in `pyarrow.parquet.read_table`.

    Raises BadInput if they cannot be read.
    """
    source = arrow_source(path)  # refuses what would block
    with reading(path):
        return pq.read_table(source, columns=None if names is None else list(names), **how)
