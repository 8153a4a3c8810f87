"""Parquet files with one vector per row, laid out for random access to any row.

A row has the key of a sample, a number (which of its views or captions) and a float32 vector.
Vectors are stored uncompressed and without a dictionary, in one data page per row group. So those
of a row group are the last bytes of its column chunk, in order, and a row is read with one pread.
Shapes: N rows, D channels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.atomic import new_part
from vlcpctl.core.errors import BadInput

ROWS_PER_GROUP = 1024
_ONE_PAGE = 1 << 30  # bytes; with a second page, its header would be in between the vectors
_BYTES = 4  # of a float32


@dataclass(frozen=True)
class Vectors:
    """Rows of a file."""

    keys: Sequence[str]  # N sample keys
    numbers_N: np.ndarray  # int32: which of the sample's views or captions
    vectors_ND: np.ndarray  # float32


class VectorFile:
    """An open file; `number` is the name of its number column, "view" or "caption".

    Raises BadInput if it cannot be read, or if its layout is not the one written here.
    """

    def __init__(self, path: Path, number: str) -> None:
        self.path, self.number = path, number
        try:
            self._metadata = pq.read_metadata(path)
            self.width = int(pq.read_schema(path).field("embedding").type.list_size)
            self._offsets = [self._offset(group) for group in range(self._metadata.num_row_groups)]
        except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
            raise BadInput(f"cannot read {path}: {str(error).splitlines()[0]}") from error
        counts = [self._metadata.row_group(group).num_rows for group in range(len(self._offsets))]
        self._starts = np.cumsum([0, *counts])
        self._descriptors: dict[int, int] = {}
        self._check_plain()

    def __len__(self) -> int:
        return int(self._metadata.num_rows)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) float32: the vectors at `rows`, (n,), in that order.

        They are read without verifying checksums. Raises BadInput if the file is truncated.
        """
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        inside = rows - self._starts[groups]
        size = self.width * _BYTES
        data = [
            os.pread(self._descriptor, size, self._offsets[group] + place * size)
            for group, place in zip(groups.tolist(), inside.tolist(), strict=True)
        ]
        if any(len(one) != size for one in data):
            raise BadInput(f"{self.path} is truncated; run 'vlcpctl check'")
        return np.frombuffer(bytearray().join(data), dtype="<f4").reshape(len(rows), self.width)

    @cached_property
    def keys(self) -> list[str]:
        """N strings: the key of each row's sample."""
        keys: list[str] = self._columns(["key"])["key"].to_pylist()
        return keys

    @cached_property
    def numbers(self) -> np.ndarray:
        """(N,) int32: which of its sample's views or captions each row is."""
        numbers: np.ndarray = self._columns([self.number])[self.number].to_numpy()
        return numbers

    def group(self, number: int) -> Vectors:
        """All rows of a row group, read through the Parquet reader with checksums verified.

        Raises BadInput if they cannot be read.
        """
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                table = file.read_row_group(number)
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"cannot read {self.path}: {str(error).splitlines()[0]}") from error
        flat = table["embedding"].combine_chunks().flatten().to_numpy()
        numbers = table[self.number].to_numpy()
        return Vectors(table["key"].to_pylist(), numbers, flat.reshape(-1, self.width))

    @property
    def groups(self) -> range:
        """The indices of its row groups."""
        return range(len(self._offsets))

    def content(self) -> str:
        """The content id of all rows. Raises BadInput if a page checksum does not match."""
        content = Content()
        for number in self.groups:
            content.add(self.group(number))
        return content.hexdigest()

    def _offset(self, group: int) -> int:
        """The file offset of a row group's first vector, counted back from its column's end."""
        column = self._metadata.row_group(group).column(2)
        end = column.data_page_offset + column.total_compressed_size
        return int(end - column.num_values * _BYTES)

    def _check_plain(self) -> None:
        """Refuse a file that another program has rewritten with a different layout.

        The metadata does not tell the number of pages, so the first and the last row group are read
        both ways and compared.
        """
        columns = [self._metadata.row_group(group).column(2) for group in self.groups]
        is_plain = all(
            column.compression == "UNCOMPRESSED" and not column.has_dictionary_page
            for column in columns
        )
        for number in sorted({0, len(self._offsets) - 1} & set(self.groups)) if is_plain else ():
            start, stop = self._starts[number : number + 2]
            there = self.group(number).vectors_ND
            is_plain = is_plain and np.array_equal(there, self.take(np.arange(start, stop)))
        if not is_plain:
            raise BadInput(
                f"{self.path} was rewritten by another program, which changed its layout; "
                "restore the original file"
            )

    @property
    def _descriptor(self) -> int:
        # Workers are forked: each process opens its own, as `tasks.task.Split` does.
        pid = os.getpid()
        if pid not in self._descriptors:
            self._descriptors[pid] = os.open(self.path, os.O_RDONLY)
        return self._descriptors[pid]

    def _columns(self, names: list[str]) -> pa.Table:
        try:
            return pq.read_table(self.path, columns=names)
        except (OSError, pa.ArrowException) as error:
            raise BadInput(f"cannot read {self.path}: {str(error).splitlines()[0]}") from error


class Content:
    """The content id of rows, computed incrementally.

    Keys, numbers and vectors have a digest each, so it does not depend on how rows are batched.
    """

    def __init__(self) -> None:
        self._digests = [hashlib.blake2b(digest_size=16) for _ in range(3)]

    def add(self, rows: Vectors) -> None:
        """Hash the next rows."""
        keys, numbers, vectors = self._digests
        keys.update("".join(f"{key}\n" for key in rows.keys).encode())
        numbers.update(rows.numbers_N.astype("<i4").tobytes())
        vectors.update(np.ascontiguousarray(rows.vectors_ND, dtype="<f4").tobytes())

    def hexdigest(self) -> str:
        """The content id of the rows added so far."""
        return "".join(digest.hexdigest() for digest in self._digests)


def write_vectors(path: Path, rows: Vectors, number: str) -> None:
    """Write these rows to a new file; `number` names its number column."""
    schema = _schema(rows.vectors_ND.shape[1], number)
    with new_part(path) as temporary, _writer(temporary, schema) as writer:
        writer.write_table(_table(rows, schema), row_group_size=ROWS_PER_GROUP)


def join_vectors(out: Path, parts: Iterable[Path], number: str) -> tuple[int, str]:
    """Concatenate the parts into one file; returns the number of rows and their content id.

    Raises BadInput if a part cannot be read.
    """
    content, count, writer = Content(), 0, None
    with new_part(out) as temporary:
        for path in parts:
            part = VectorFile(path, number)
            schema = _schema(part.width, number)
            writer = writer or _writer(temporary, schema)
            for group in part.groups:
                rows = part.group(group)
                content.add(rows)
                writer.write_table(_table(rows, schema))
                count += len(rows.keys)
        assert writer is not None, "join_vectors needs at least one part"
        writer.close()
    return count, content.hexdigest()


def _schema(width: int, number: str) -> pa.Schema:
    item = pa.field("element", pa.float32(), nullable=False)
    return pa.schema(
        [
            pa.field("key", pa.string(), nullable=False),
            pa.field(number, pa.int32(), nullable=False),
            pa.field("embedding", pa.list_(item, width), nullable=False),
        ]
    )


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="none",
        use_dictionary=["key"],
        data_page_size=_ONE_PAGE,
        write_statistics=False,
        write_page_checksum=True,
    )


def _table(rows: Vectors, schema: pa.Schema) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(rows.vectors_ND, dtype=np.float32).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("embedding").type)
    keys = pa.array(rows.keys, pa.string())
    return pa.table([keys, pa.array(rows.numbers_N, pa.int32()), vectors], schema=schema)
