"""Vectors on disk: a Parquet table of samples and facts, beside .npy files whose rows are theirs.

The layout is that of clip-retrieval, which autofaiss and FAISS can read, too: row i of a file
belongs to row i of the table, or the rows of the table have several each, in order. Other programs
read them with pandas.read_parquet("NAME.parquet") and numpy.load("NAME.npy", mmap_mode="r").
Rows are read from disk when they are used, without verifying a checksum: the code that opens an
artifact verifies its files first. They are read and not memory-mapped, because a mapped file that
another program cuts short would end the process with SIGBUS; 64 rows of 512 channels take 0.13 ms.
Shapes: N rows, D channels, S samples.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.files.digests import RESTORE
from vlcpctl.files.inputs import naming_input, open_regular, reading
from vlcpctl.files.outputs import new_part
from vlcpctl.files.parquet_files import read_columns
from vlcpctl.files.stores import whole

_ROWS_AT_ONCE = 1 << 16


class VectorFile:
    """An (N, D) array in a .npy file, whose rows are read when they are used.

    Raises BadInput if the file is missing, truncated or not .npy, or if its array is not a matrix
    of this dtype in C order; also later, if it is cut short while it is open.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        with reading(path), open_regular(whole(path), buffering=0) as file:
            try:
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"its format is version {version}")
                shape, is_fortran, found = np.lib.format.read_array_header_1_0(file)
            except (TypeError, SyntaxError, TokenError) as error:
                raise ValueError(f"its header is damaged: {error}") from error
            self._start, size = file.tell(), os.fstat(file.fileno()).st_size
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        order = "Fortran" if is_fortran and len(shape) > 1 else "C"
        if len(shape) != 2 or found != self.dtype or order != "C":
            raise BadInput(
                f"{path} has {found.str} values of shape {shape} in {order} order, "
                f"not a matrix of {self.dtype} in C order{RESTORE}"
            )
        self._rows, self.width = shape
        self._row_bytes = self.width * self.dtype.itemsize
        if min(shape) < 0 or self._start + self._rows * self._row_bytes != size:
            raise BadInput(f"cannot read {path}: its size does not match its header")

    def __len__(self) -> int:
        return self._rows

    def __reduce__(self) -> tuple[type[VectorFile], tuple[Path, np.dtype[np.generic]]]:
        # Where workers are spawned, each opens the file again and gets no copy of the vectors.
        return VectorFile, (self.path, self.dtype)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) copies of these rows, (n,) int."""
        return self._array([self._read(row, 1) for row in rows.tolist()])

    def mapped(self) -> np.ndarray:
        """All rows, mapped; what is written to them stays in this process.

        For files that no other program writes: see above.
        """
        if not len(self) or not self.width:
            return np.empty((len(self), self.width), self.dtype)
        with reading(self.path):
            return np.memmap(self.path, self.dtype, "c", self._start, (len(self), self.width))

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in order, in blocks (n, D) of at most _ROWS_AT_ONCE."""
        for start in range(0, self._rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, self._rows - start)
            yield self._array([self._read(start, count)])

    def kept(self, keep_N: np.ndarray) -> Iterator[np.ndarray]:
        """The rows that stay, (N,) bool, in order and in blocks (n, D)."""
        start = 0
        for block in self.blocks():
            yield block[keep_N[start : start + len(block)]]
            start += len(block)

    def all(self) -> np.ndarray:
        """(N, D): all rows, in memory."""
        return np.concatenate([np.empty((0, self.width), self.dtype), *self.blocks()])

    def _read(self, row: int, count: int) -> bytes:
        # pread has no position that forked workers would share.
        wanted, data = count * self._row_bytes, b""
        while len(data) < wanted:
            at = self._start + row * self._row_bytes + len(data)
            with naming_input(self.path):
                more = os.pread(self._descriptor, wanted - len(data), at)
            if not more:
                raise BadInput(f"{self.path} was cut short while it was being read")
            data += more
        return data

    def _array(self, data: list[bytes]) -> np.ndarray:
        values = np.frombuffer(bytearray().join(data), dtype=self.dtype)
        return values.reshape(-1, self.width) if self.width else values.reshape(len(data), 0)


def write_vectors(
    path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: npt.DTypeLike
) -> None:
    """Write the rows of the blocks, `shape` in all, to a new .npy file of this dtype."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_part(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": descr, "fortran_order": False, "shape": shape}
        )
        # Not numpy.save, whose error for a full disk does not mention the disk.
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)


@dataclass(frozen=True)
class Store:
    """A table and files of vectors in a directory, by their names relative to it.

    `files` says how many rows of each file belong to a row of the table: a number, or the column
    that has it. `columns` are those of the table, or None if it may have others; `key` is that of
    the samples' keys.
    """

    directory: Path
    table: str
    files: Mapping[str, int | str]
    dtype: npt.DTypeLike
    columns: pa.Schema | None = None
    key: str = "key"

    def rows(self, names: Collection[str] | None = None) -> pa.Table:
        """These columns of the table, or all; checksums of pages are verified.

        Raises BadInput if they cannot be read or have other types.
        """
        path, schema = self.directory / self.table, self.columns
        if names is None and schema is not None:
            names = schema.names
        wanted = None if names is None else list(names)
        table = read_columns(path, wanted, page_checksum_verification=True)
        if schema is None or wanted is None:
            return table
        with reading(path):
            return table.cast(pa.schema([schema.field(name) for name in wanted]))

    def samples(self) -> list[str]:
        """The keys of the samples that the rows of the table are of."""
        keys: list[str] = self.rows([self.key])[self.key].cast(pa.string()).to_pylist()
        return keys

    def vectors(self, name: str, table: pa.Table | None = None) -> VectorFile:
        """A file of vectors, opened; `table` is the table, if it was read.

        Raises BadInput if it cannot be read, or has not the number of rows that the table says.
        """
        found = VectorFile(self.directory / name, self.dtype)
        wanted = int(self._counts(name, self._read(name) if table is None else table).sum())
        if len(found) != wanted:
            raise BadInput(
                f"{found.path} has {len(found)} rows, but {self.directory / self.table} has "
                f"{wanted}; run 'vlcpctl check'"
            )
        return found

    def write(
        self, table: pa.Table, vectors: Mapping[str, Iterable[np.ndarray]], width: int
    ) -> None:
        """Write the table, and each file from blocks of rows (n, D).

        Raises BadInput if the blocks do not have the rows that the table says.
        """
        path = self.directory / self.table
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_part(path) as temporary:
            pq.write_table(
                table if self.columns is None else table.cast(self.columns),
                temporary,
                row_group_size=_ROWS_AT_ONCE,
                write_statistics=False,
                write_page_checksum=True,
            )
        for name, blocks in vectors.items():
            shape = int(self._counts(name, table).sum()), width
            write_vectors(self.directory / name, blocks, shape, self.dtype)
            self.vectors(name, table)

    def write_without(self, directory: Path, keys: Collection[str]) -> Store:
        """Write it to another directory without the rows of some samples; returns the new one.

        Raises BadInput if a file cannot be read, or has not the rows of the table.
        """
        table = self.rows()
        names = table[self.key].cast(pa.string())
        keep = pc.invert(pc.is_in(names, value_set=pa.array(sorted(keys), pa.string())))
        files = {name: self.vectors(name, table) for name in self.files}
        blocks = {
            name: one.kept(np.repeat(keep.to_numpy(), self._counts(name, table)))
            for name, one in files.items()
        }
        (width,) = {one.width for one in files.values()}
        other = Store(directory, self.table, self.files, self.dtype, self.columns, self.key)
        other.write(table.filter(keep), blocks, width)
        return other

    def _read(self, name: str) -> pa.Table:
        """The columns of the table that say how many rows a file has."""
        count = self.files[name]
        return self.rows([count if isinstance(count, str) else self.key])

    def _counts(self, name: str, table: pa.Table) -> np.ndarray:
        """(N,): the number of rows of a file that each row of the table has."""
        count = self.files[name]
        if isinstance(count, str):
            counts: np.ndarray = table[count].to_numpy()
            return counts
        return np.full(len(table), count)


def digest_of(table: pa.Table) -> str:
    """A digest of the values of a table of texts and numbers, whatever wrote its file."""
    digest = hashlib.blake2b(digest_size=16)
    for column in table.columns:
        if pa.types.is_string(column.type):
            for some in column.chunks:
                digest.update("".join(f"{text}\n" for text in some.to_pylist()).encode())
        else:
            digest.update(np.ascontiguousarray(column.to_numpy()).data)
    return digest.hexdigest()
