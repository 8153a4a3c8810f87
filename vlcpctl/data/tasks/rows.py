"""What is read of each row of a split while training: an Arrow IPC file, which is memory-mapped.

It is SPLIT.arrow beside the index, SPLIT.parquet, from which it is made, and has some of its
columns in one record batch, uncompressed: pyarrow.ipc.open_file, pandas and polars read it. Parquet
cannot be mapped. Of a mapped file nothing is copied into worker processes, and several processes on
a machine share one copy in the page cache. vlcpctl never changes such a file, it only replaces it;
another program that cuts one short while it is mapped ends the process with SIGBUS.
Shapes: N rows, T captions of all of them together.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys, text_buffers, unhex
from vlcpctl.files.inputs import open_regular

SHA256_BYTES = 32
_TEXTS = pa.large_list(pa.field("item", pa.large_string()))
_CODED = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(KEY_BYTES), nullable=False),
        pa.field("shard", _CODED, nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("captions", _TEXTS, nullable=False),
        pa.field("label", _CODED),
        pa.field("sha256", pa.binary(SHA256_BYTES), nullable=False),
    ]
)
COLUMNS = tuple(SCHEMA.names)
ENDING = ".arrow"


@dataclass(frozen=True)
class Rows:
    """The columns of N rows as arrays; captions are UTF-8 bytes, one after the other in `text`.

    The captions of row n are those from `lists[n]` to `lists[n + 1]`, of which caption t is
    `text[ends[t]:ends[t + 1]]`.
    """

    keys: Keys
    shards: list[str]  # names of tars
    shard_N: np.ndarray  # int32, index into `shards`
    offset_N: np.ndarray  # int64
    size_N: np.ndarray  # int32
    lists: np.ndarray  # (N + 1,) int64
    ends: np.ndarray  # (T + 1,) int64
    text: memoryview
    label: pa.DictionaryArray
    sha256: memoryview  # (32 N,) bytes

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def place(self) -> tuple[memoryview, memoryview, memoryview]:
        """`shard_N`, `offset_N` and `size_N`, of which single numbers are read faster."""
        return self.shard_N.data, self.offset_N.data, self.size_N.data

    @cached_property
    def caption(self) -> tuple[memoryview, memoryview, memoryview]:
        """`lists`, `ends` and `text`, of which single numbers are read faster."""
        return self.lists.data, self.ends.data, self.text


def rows_of(batch: pa.RecordBatch) -> Rows:
    """The arrays of a record batch of `SCHEMA` without nulls; they share its memory."""
    count = len(batch)
    shard, captions = batch["shard"], batch["captions"]
    lists = _starts(captions.buffers()[1], count)
    texts = captions.values
    ends = _starts(texts.buffers()[1], len(texts))
    raw = _view(batch["key"].buffers()[1], np.uint8, count * KEY_BYTES).reshape(-1, KEY_BYTES)
    return Rows(
        keys=Keys(raw),
        shards=shard.dictionary.to_pylist(),
        shard_N=_view(shard.indices.buffers()[1], np.int32, count),
        offset_N=_view(batch["offset"].buffers()[1], np.int64, count),
        size_N=_view(batch["size"].buffers()[1], np.int32, count),
        lists=lists,
        ends=ends,
        text=_bytes(texts.buffers()[2]),
        label=batch["label"],
        sha256=_bytes(batch["sha256"].buffers()[1]),
    )


def map_rows(path: Path) -> Rows:
    """The rows in a file, mapped. Raises BadInput as `map_batch` does."""
    return rows_of(map_batch(path))


def lowest_rows(path: Path, count: int) -> Rows:
    """The rows with the `count` lowest keys in a file, in its order; in memory.

    Raises BadInput as `map_batch` does.
    """
    batch = map_batch(path)
    lowest = np.sort(rows_of(batch).keys.order()[:count])
    return rows_of(batch.take(pa.array(lowest)))


def map_batch(path: Path) -> pa.RecordBatch:
    """Map a file of rows. Raises BadInput if it cannot be read, or is not one that is valid.

    Offsets, UTF-8 and nulls are checked, so that whatever the file has, a row can be looked up.
    """
    try:
        with open_regular(path) as file:
            mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        reader = pa.ipc.open_file(pa.BufferReader(mapped))
        if not reader.schema.equals(SCHEMA) or reader.num_record_batches != 1:
            raise BadInput(f"{path} does not have the columns of an index; run 'vlcpctl check'")
        batch = reader.get_batch(0)
        batch.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(unreadable(path, error)) from error
    for field in SCHEMA:
        if batch[field.name].null_count and not field.nullable:
            raise BadInput(f"{path}: column {field.name!r} contains nulls; run 'vlcpctl check'")
    nulls = (batch["captions"].values, batch["shard"].dictionary, batch["label"].dictionary)
    if any(array.null_count for array in nulls):
        raise BadInput(f"{path}: a text is null; run 'vlcpctl check'")
    return batch


def is_of(rows: pa.RecordBatch, index: pa.RecordBatch) -> bool:
    """Whether rows, of a file or a part of it, are those of an index with the same number of rows.

    Raises ValueError as `RowsBuilder.add` does.
    """
    builder = RowsBuilder()
    builder.add(index)
    expected = builder.finish()
    return len(rows) == len(expected) and all(
        _plain(rows[name]).equals(_plain(expected[name])) for name in COLUMNS
    )


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class RowsBuilder:
    """Collects rows of an index for a record batch of `SCHEMA`, on disk or in memory.

    With `spool`, a path, each column is collected in files beginning with that name; with None in
    memory. Collecting on disk takes no memory that grows with the rows.
    """

    def __init__(self, spool: Path | None = None) -> None:
        self.count = 0
        self._codes: dict[str, dict[str, int]] = {"shard": {}, "label": {}}
        names = (*COLUMNS, "ends", "text")
        self._spools = {
            name: _Spool(spool and spool.with_name(f"{spool.name}.{name}")) for name in names
        }
        self._ends = {"captions": 0, "ends": 0}
        for name in self._ends:
            self._spools[name].add(np.zeros(1, np.int64).tobytes())

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows, with the columns of the index without nulls where it has none.

        Raises ValueError if a key or sha256 is not of hex digits.
        """
        for name, width in (("key", KEY_BYTES), ("sha256", SHA256_BYTES)):
            raw = unhex(batch[name], width)
            if raw is None:
                raise ValueError(f"a {name} is not {2 * width} hexadecimal digits")
            self._spools[name].add(raw)
        for name, codes in self._codes.items():
            self._spools[name].add(_coded(batch[name], codes).tobytes())
        for name in ("offset", "size"):
            self._spools[name].add(batch[name].to_numpy(zero_copy_only=False).tobytes())
        captions = batch["captions"]
        starts = captions.offsets.to_numpy()
        ends, text = text_buffers(captions.values.slice(starts[0], starts[-1] - starts[0]))
        self._add_ends("captions", starts - starts[0])
        self._add_ends("ends", ends)
        self._spools["text"].add(bytes(text))
        self.count += len(batch)

    def finish(self) -> pa.RecordBatch:
        """All rows as one record batch; call `close` after its last use."""
        bytes_of = {name: spool.buffer() for name, spool in self._spools.items()}
        count, texts = self.count, len(bytes_of["ends"]) // 8 - 1
        caption = pa.Array.from_buffers(
            pa.large_string(), texts, [None, bytes_of["ends"], bytes_of["text"]]
        )
        plain = {
            name: pa.Array.from_buffers(SCHEMA.field(name).type, count, [None, bytes_of[name]])
            for name in ("key", "offset", "size", "sha256")
        }
        arrays = plain | {
            "captions": pa.Array.from_buffers(
                _TEXTS, count, [None, bytes_of["captions"]], children=[caption]
            ),
            "shard": self._dictionary("shard", bytes_of["shard"]),
            "label": self._dictionary("label", bytes_of["label"]),
        }
        return pa.record_batch([arrays[name] for name in COLUMNS], schema=SCHEMA)

    def close(self) -> None:
        """Remove the files in which columns were collected."""
        for spool in self._spools.values():
            spool.close()

    def _add_ends(self, name: str, ends: np.ndarray) -> None:
        """Append where n more items end, given (n + 1,) places that count from these."""
        self._spools[name].add((ends[1:].astype(np.int64) + self._ends[name]).tobytes())
        self._ends[name] += int(ends[-1])

    def _dictionary(self, name: str, codes: pa.Buffer) -> pa.DictionaryArray:
        valid_N = _view(codes, np.int32, self.count) >= 0
        nulls = self.count - int(valid_N.sum())
        bits = pa.py_buffer(np.packbits(valid_N, bitorder="little").tobytes()) if nulls else None
        indices = pa.Array.from_buffers(pa.int32(), self.count, [bits, codes], nulls)
        names = pa.array(list(self._codes[name]), pa.string())
        return pa.DictionaryArray.from_arrays(indices, names)


def write_rows(path: Path, batch: pa.RecordBatch) -> None:
    """Write a record batch of `SCHEMA` to a file that `map_rows` maps."""
    with path.open("wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_batch(batch)


class RowsWriter:
    """Writes the file of rows of an index; its columns are first collected in files beside it."""

    def __init__(self, index: Path) -> None:
        self.path = rows_path(index)
        self._builder = RowsBuilder(self.path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows; see `RowsBuilder.add`."""
        self._builder.add(batch)

    def close(self) -> None:
        """Write the file."""
        write_rows(self.path, self._builder.finish())
        self._builder.close()

    def abandon(self) -> None:
        """Remove what was collected, after a failure."""
        self._builder.close()


def rows_path(index: Path) -> Path:
    """The path of the rows that belong to an index."""
    return index.with_suffix(ENDING)


class _Spool:
    """Bytes that are collected in a file, or in memory without a path.

    What was added last is in memory: a small column never becomes a file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._size = path, 0
        self._pieces: list[bytes] = []

    def add(self, data: bytes) -> None:
        if self._path is not None and sum(map(len, self._pieces)) > _KEPT_BYTES:
            self._store()
        self._pieces.append(data)

    def buffer(self) -> pa.Buffer:
        """All bytes; those in a file are mapped."""
        if self._path is None or not self._size:
            data, self._pieces = b"".join(self._pieces), []
            return pa.py_buffer(data)
        self._store()
        with self._path.open("rb") as file:
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))

    def close(self) -> None:
        self._pieces = []
        if self._path is not None and self._size:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _store(self) -> None:
        # Opened each time: with a thousand tasks the process would run out of file descriptors.
        assert self._path is not None
        with self._path.open("ab", buffering=0) as file:
            for piece in self._pieces:
                left = memoryview(piece)
                while left:
                    left = left[file.write(left) :]
                self._size += len(piece)
        self._pieces = []


_KEPT_BYTES = 1 << 16


def _coded(texts: pa.StringArray, codes: dict[str, int]) -> np.ndarray:
    """(n,) int32: the codes of texts, -1 of a null; adds new ones to `codes`."""
    found = texts.dictionary_encode()
    code_of = [codes.setdefault(text, len(codes)) for text in found.dictionary.to_pylist()]
    coded: np.ndarray = np.array([*code_of, -1], np.int32)[
        pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False)
    ]
    return coded


def _view(buffer: pa.Buffer | None, kind: type[np.generic], count: int) -> np.ndarray:
    """(count,) the values in a buffer, which an array without any may lack."""
    return np.frombuffer(buffer or b"", kind, count) if count else np.empty(0, kind)


def _starts(buffer: pa.Buffer | None, count: int) -> np.ndarray:
    """(count + 1,) int64: the offsets of an array of lists or texts."""
    return _view(buffer, np.int64, count + 1) if count else np.zeros(1, np.int64)


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(buffer or b"").cast("B")  # Arrow's are signed, which bytes never equal
