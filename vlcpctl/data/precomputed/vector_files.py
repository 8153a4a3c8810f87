"""Vectors on disk: NAME.npy, and a Parquet table of what each row is.

Row i of the array belongs to row i of the table NAME.parquet, which has the columns "key", of a
sample, and "view" or "caption", the number of the sample's view or caption. Other programs read
them with pandas.read_parquet("NAME.parquet") and numpy.load("NAME.npy", mmap_mode="r").
Rows are read from disk when they are used, without verifying a checksum: the code that opens an
artifact verifies its files first. They are read and not memory-mapped, because a mapped file that
another program cuts short would end the process with SIGBUS; 64 rows of 512 channels take 0.13 ms.
Shapes: N rows, D channels, K samples.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.files.digests import RESTORE
from vlcpctl.files.inputs import naming_input, open_regular, reading
from vlcpctl.files.outputs import new_part
from vlcpctl.files.parquet_files import read_columns
from vlcpctl.files.stores import whole

_ROWS_AT_ONCE = 1 << 16


class VectorFile:
    """An open pair of files; `path` is the table, `number` its second column, "view" or "caption".

    Of the table nothing stays in memory. Raises BadInput if one of the files cannot be read or the
    two differ in their number of rows.
    """

    def __init__(self, path: Path, number: str) -> None:
        self.path, self.number = path, number
        rows = len(self._table(number))
        self._matrix = Matrix(path.with_suffix(".npy"), np.float32)
        if len(self) != rows:
            raise BadInput(
                f"{path.with_suffix('.npy')} has {len(self)} rows, but {path} has {rows}; run "
                "'vlcpctl check'"
            )

    def __len__(self) -> int:
        return len(self._matrix)

    def __reduce__(self) -> tuple[type[VectorFile], tuple[Path, str]]:
        # Where workers are spawned, each opens the file again and gets no copy of the vectors.
        return VectorFile, (self.path, self.number)

    @property
    def width(self) -> int:
        """The number of channels, D."""
        return self._matrix.width

    @property
    def numbers(self) -> np.ndarray:
        """(N,) int32: the column of numbers, read from the file."""
        numbers: np.ndarray = self._table(self.number)[self.number].to_numpy()
        return numbers

    @property
    def keys(self) -> list[str]:
        """N strings: the key of each row's sample, read from the file."""
        keys: list[str] = self._table("key")["key"].to_pylist()
        return keys

    def first_rows(self) -> tuple[np.ndarray, Keys]:
        """(K,) int64: the first row of each of K samples, number 0, and their keys.

        Raises BadInput if a key is not one that `split` makes.
        """
        first_K = np.flatnonzero(self.numbers == 0)
        names = self._table("key")["key"].cast(pa.large_string()).combine_chunks()
        try:
            return first_K, Keys.of_array(names.take(pa.array(first_K)))
        except ValueError as error:
            raise BadInput(f"{self.path}: {error}; run 'vlcpctl check'") from error

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) float32: the vectors of these rows, (n,) int. Raises BadInput as `Matrix` does."""
        return self._matrix[rows]

    def kept(self, keep_N: np.ndarray) -> Iterator[np.ndarray]:
        """The vectors of the rows that stay, (N,) bool, in order and in blocks (n, D)."""
        return kept_blocks(self._matrix, keep_N)

    def content(self) -> str:
        """The content id of all rows: one digest each of the keys, the numbers and the vectors."""
        keys = hashlib.blake2b(digest_size=16)
        for batch in self._table("key").to_batches(_ROWS_AT_ONCE):
            keys.update("".join(f"{key}\n" for key in batch["key"].to_pylist()).encode())
        numbers = hashlib.blake2b(self.numbers.astype("<i4").data, digest_size=16)
        vectors = hashlib.blake2b(digest_size=16)
        for block in self._matrix.blocks():
            vectors.update(block.reshape(-1).data)
        return "".join(digest.hexdigest() for digest in (keys, numbers, vectors))

    def _table(self, column: str) -> pa.Table:
        return read_table(self.path, _schema(self.number), [column])


class Matrix:
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


def read_vectors(path: Path, dtype: npt.DTypeLike) -> np.ndarray:
    """The (N, D) array of a .npy file, in memory. Raises BadInput as `Matrix` does."""
    matrix = Matrix(path, dtype)
    return np.concatenate([np.empty((0, matrix.width), dtype), *matrix.blocks()])


def write_vectors(
    path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: npt.DTypeLike
) -> None:
    """Write the rows of the blocks, `shape` in all, to a new .npy file of this dtype."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    with new_part(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": descr, "fortran_order": False, "shape": shape}
        )
        # Not numpy.save, whose error for a full disk does not mention the disk.
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)


def read_table(path: Path, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Some columns of a table beside vectors; its page checksums are verified.

    Raises BadInput if they cannot be read or do not fit the schema.
    """
    table = read_columns(path, columns, page_checksum_verification=True)
    with reading(path):
        return table.cast(pa.schema([schema.field(name) for name in columns]))


def write_table(path: Path, table: pa.Table) -> None:
    """Write the table that describes the rows of vectors to a new file."""
    with new_part(path) as temporary:
        pq.write_table(
            table,
            temporary,
            row_group_size=_ROWS_AT_ONCE,
            write_statistics=False,
            write_page_checksum=True,
        )


def join_vectors(
    path: Path,
    number: str,
    keys: Sequence[str],
    counts_K: np.ndarray,
    parts: Iterable[Path],
    width: int,
) -> tuple[int, str]:
    """Write a table and, in one array, the vectors of its parts; returns the rows and content id.

    The K samples with these keys have `counts_K` rows each, numbered from 0; a part is a .npy file.
    Raises BadInput if a part cannot be read, or if the parts do not have the rows of the table.
    """
    owners = np.repeat(np.arange(len(keys)), counts_K)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts_K) - counts_K, counts_K)
    names, starts = pa.array(keys, pa.string()), range(0, len(owners), _ROWS_AT_ONCE)
    chunks = [names.take(pa.array(owners[start : start + _ROWS_AT_ONCE])) for start in starts]
    blocks = (block for part in parts for block in Matrix(part, np.float32).blocks())
    return _write(path, number, pa.chunked_array(chunks, pa.string()), numbers, blocks, width)


def write_rows_without(file: VectorFile, path: Path, keys: Collection[str]) -> tuple[int, str]:
    """Write a table and its vectors again without the rows of some samples, as new files.

    Returns the number of rows left and the content id. Raises BadInput as `VectorFile` does.
    """
    names = pa.array(file.keys, pa.string())
    drop_N = pc.is_in(names, value_set=pa.array(sorted(keys), pa.string())).to_numpy(False)
    kept = names.filter(pa.array(~drop_N))
    return _write(path, file.number, kept, file.numbers[~drop_N], file.kept(~drop_N), file.width)


def _write(
    path: Path,
    number: str,
    keys: pa.Array | pa.ChunkedArray,
    numbers: np.ndarray,
    blocks: Iterable[np.ndarray],
    width: int,
) -> tuple[int, str]:
    """Write a table and its vectors; returns the number of rows and the content id."""
    write_table(path, pa.table([keys, pa.array(numbers, pa.int32())], schema=_schema(number)))
    write_vectors(path.with_suffix(".npy"), blocks, (len(numbers), width), np.float32)
    written = VectorFile(path, number)
    return len(written), written.content()


def kept_blocks(matrix: Matrix, keep_N: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of a matrix that stay, (N,) bool, in order and in blocks (n, D)."""
    start = 0
    for block in matrix.blocks():
        yield block[keep_N[start : start + len(block)]]
        start += len(block)


def _schema(number: str) -> pa.Schema:
    return pa.schema(
        [
            pa.field("key", pa.string(), nullable=False),
            pa.field(number, pa.int32(), nullable=False),
        ]
    )
