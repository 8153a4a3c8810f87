"""What is read of each row of a split while training: an Arrow IPC file, which is memory-mapped.

It is SPLIT.arrow beside the index, SPLIT.parquet, from which it is derived: where it is missing, or
of another index, it is made again. It has some columns of the index in batches of `EVERY` rows,
uncompressed: pyarrow.ipc.open_file, pandas and polars read it. Parquet cannot be mapped. Of a
mapped file nothing is copied into worker processes, and several processes on a machine share one
copy in the page cache. vlcpctl never changes such a file, it only replaces it; another program that
cuts one short while it is mapped ends the process with SIGBUS.
Shapes: N rows, T captions of all of them together.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys, unhex
from vlcpctl.files.digests import ALGORITHM, FileDigest, cached_digest, changed_files
from vlcpctl.files.inputs import arrow_source, open_regular

SHA256_BYTES = 32
EVERY = 1 << 16  # rows of a batch, and of a row group of the index
ENDING = ".arrow"
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(KEY_BYTES), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),  # its place in the list of the metadata
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("captions", pa.large_list(pa.field("item", pa.large_string())), nullable=False),
        pa.field("label", pa.string()),
        pa.field("sha256", pa.binary(SHA256_BYTES), nullable=False),
    ]
)
_INDEX, _SHARDS, _AGAIN = b"vlcpctl.index", b"vlcpctl.shards", b"vlcpctl.again"


class _Part(NamedTuple):
    """The buffers of a batch, of which single values are read fast."""

    keys: memoryview
    place: tuple[memoryview, memoryview, memoryview]  # shard, offset, size
    lists: memoryview  # the captions of row n are those from `lists[n]` to `lists[n + 1]`
    ends: memoryview  # caption t is `text[ends[t]:ends[t + 1]]`
    text: memoryview
    sha256: memoryview


class Rows:
    """N rows in batches of `EVERY` rows, but the last; `shards` are the names of tars."""

    def __init__(self, batches: list[pa.RecordBatch], shards: list[str]) -> None:
        self.shards = shards
        self._batches = batches
        self._parts = list(map(_part, batches))
        self._every = len(batches[0]) if batches else 1
        self._count = sum(map(len, batches))

    def __len__(self) -> int:
        return self._count

    def key(self, row: int) -> str:
        """The key of a row, 32 hex digits."""
        part, at = self._at(row)
        return part.keys[KEY_BYTES * at : KEY_BYTES * (at + 1)].hex()

    def place(self, row: int) -> tuple[int, int, int]:
        """The number of a row's tar, and the offset and size of its image in it."""
        part, at = self._at(row)
        shard, offset, size = part.place
        return shard[at], offset[at], size[at]

    def sha256(self, row: int) -> memoryview:
        """The digest of a row's image, 32 bytes."""
        part, at = self._at(row)
        return part.sha256[SHA256_BYTES * at : SHA256_BYTES * (at + 1)]

    def captions(self, row: int) -> list[str]:
        """The captions of a row."""
        part, at = self._at(row)
        places = part.ends[part.lists[at] : part.lists[at + 1] + 1].tolist()
        return [str(part.text[start:end], "utf-8") for start, end in pairwise(places)]

    def caption_count(self, row: int) -> int:
        """The number of captions of a row."""
        part, at = self._at(row)
        return int(part.lists[at + 1] - part.lists[at])

    @cached_property
    def keys(self) -> Keys:
        """All N keys."""
        parts = [np.frombuffer(part.keys, np.uint8).reshape(-1, KEY_BYTES) for part in self._parts]
        return Keys(parts[0]) if len(parts) == 1 else Keys.joined(list(map(Keys, parts)))

    @cached_property
    def counts(self) -> np.ndarray:
        """(N,) int64: the number of captions of each row."""
        return _joined([np.diff(np.asarray(part.lists)) for part in self._parts], np.int64)

    @property
    def digests(self) -> np.ndarray:
        """(N, 32) uint8: the digests of the images."""
        parts = [np.frombuffer(part.sha256, np.uint8) for part in self._parts]
        return _joined(parts, np.uint8).reshape(-1, SHA256_BYTES)

    @property
    def label(self) -> pa.DictionaryArray:
        """The labels of the N rows."""
        column = pa.chunked_array([batch["label"] for batch in self._batches], pa.string())
        found: pa.DictionaryArray = pa.concat_arrays(
            column.dictionary_encode().unify_dictionaries().chunks
            or [pa.array([], pa.string()).dictionary_encode()]
        )
        return found

    def texts(self) -> tuple[np.ndarray, memoryview]:
        """All T captions, row after row, as places (T + 1,) in UTF-8 bytes, and these bytes."""
        if len(self._parts) == 1:
            return np.asarray(self._parts[0].ends), self._parts[0].text
        lengths = [np.diff(np.asarray(part.ends)) for part in self._parts]
        ends = np.concatenate([[0], np.cumsum(_joined(lengths, np.int64))]).astype(np.int64)
        return ends, memoryview(b"".join(part.text for part in self._parts))

    def lowest(self, count: int) -> Rows:
        """The rows with the `count` lowest keys, in their order; in memory."""
        lowest = np.sort(self.keys.order()[:count])
        table = pa.Table.from_batches(self._batches, SCHEMA).take(pa.array(lowest))
        return Rows(_in_memory(table.combine_chunks().to_batches(EVERY)), self.shards)

    def same(self, others: Iterable[pa.RecordBatch]) -> bool:
        """Whether these are the rows of other batches."""
        mine, theirs = (pa.Table.from_batches(some, SCHEMA) for some in (self._batches, others))
        return bool(mine.equals(theirs))

    def check(self, index: Path, sizes: Mapping[str, int]) -> None:
        """Raise BadInput for a row that is not within a tar on record, or that has no caption.

        The digests on record do not cover this for a task from elsewhere. `sizes` are bytes by tar.
        """
        unknown = [name for name in self.shards if name not in sizes]
        if unknown:
            found = f"refers to shard {unknown[0]!r:.100}, which task.json does not list"
            raise BadInput(f"{index} {found}; run 'vlcpctl check'")
        ends = np.array([sizes[name] for name in self.shards], dtype=np.int64)
        first = 0
        for part in self._parts:
            shard, offset, size = (np.asarray(column) for column in part.place)
            wrong = (shard < 0) | (shard >= len(ends)) | (offset < 0) | (size < 1)
            if len(ends):
                # Not offset + size > end, which could overflow.
                wrong |= offset > ends[np.clip(shard, 0, len(ends) - 1)] - size
            wrong |= np.diff(np.asarray(part.lists)) < 1
            if wrong.any():
                row = first + int(np.flatnonzero(wrong)[0])
                said = "its image is not within its tar, or it has no caption; run 'vlcpctl check'"
                raise BadInput(f"{index}, row {row} (key {self.key(row)}): {said}")
            first += len(shard)

    def _at(self, row: int) -> tuple[_Part, int]:
        if not 0 <= row < self._count:
            raise IndexError(row)
        number, at = divmod(row, self._every)
        return self._parts[number], at


def open_rows(index: Path, listed: FileDigest, rows: FileDigest, sizes: Mapping[str, int]) -> Rows:
    """The rows of an index, mapped; from its file of rows, which is made again if it does not fit.

    `listed` and `rows` are the digests of both on record, `sizes` the bytes of each tar. Where
    nothing can be written the rows are read into memory. Raises BadInput if the index is damaged,
    or a row cannot be right.
    """
    path, digest = rows_path(index), str(listed[ALGORITHM])
    found = mapped_rows(path, digest, rows)
    if found is None:
        try:
            write_rows(index, digest, again=True)
        except OSError:  # such as of a read-only disk
            schema, batches = derived(index, digest)
            found = Rows(_in_memory(batches), _shards_of(schema))
        else:
            found = mapped_rows(path, digest, rows)
        assert found is not None, "it was made just now"
    found.check(index, sizes)
    return found


def write_rows(index: Path, digest: str | None = None, *, again: bool = False) -> None:
    """Write the file of rows of an index, whose digest it records. Raises OSError if it cannot.

    What is made `again` says so, as another version of Arrow may write other bytes than those on
    record. Raises BadInput if the index is damaged.
    """
    path = rows_path(index)
    schema, batches = derived(index, digest or cached_digest(index), again=again)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        os.chmod(name, index.stat().st_mode & 0o777)  # noqa: PTH101 - as the index, not private
        os.replace(name, path)  # noqa: PTH105 - a name of tempfile's
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def derived(
    index: Path, digest: str, *, again: bool = False
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a file of rows, and its batches. Raises BadInput if the index is damaged."""
    try:
        shards = pq.read_table(arrow_source(index), columns=["shard"], read_dictionary=["shard"])
        names = shards["shard"].cast(pa.string()).unique().to_pylist()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise BadInput(unreadable(index, error)) from error
    about = {_INDEX: digest, _SHARDS: json.dumps(names), **({_AGAIN: "yes"} if again else {})}
    return SCHEMA.with_metadata(about), _derived(index, names)


def _derived(index: Path, shards: list[str]) -> Iterator[pa.RecordBatch]:
    names = pa.array(shards, pa.string())
    empty = True
    try:
        with pq.ParquetFile(arrow_source(index), pre_buffer=False) as file:
            for batch in file.iter_batches(EVERY, columns=SCHEMA.names, use_threads=False):
                empty = False
                columns = {name: batch[name] for name in SCHEMA.names}
                columns["shard"] = columns["shard"].cast(pa.string())
                arrays = [_column(field, columns[field.name], names) for field in SCHEMA]
                yield pa.record_batch(arrays, schema=SCHEMA)
            if empty:
                yield pa.record_batch([pa.array([], field.type) for field in SCHEMA], schema=SCHEMA)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise BadInput(unreadable(index, error)) from error


def _in_memory(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows in batches of `EVERY`, whose buffers begin with their first row."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    reader = pa.ipc.open_file(sink.getvalue())
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _column(field: pa.Field, column: pa.Array, shards: pa.Array) -> pa.Array:
    """A column of the index as it is in the file of rows. Raises ValueError if it does not fit."""
    if column.null_count and not field.nullable:
        raise ValueError(f"column {field.name!r} contains nulls")
    if field.name == "shard":
        return pc.index_in(column, value_set=shards)
    if field.name in {"key", "sha256"}:
        width = field.type.byte_width
        raw = unhex(column.cast(pa.string()), width)
        if raw is None:
            raise ValueError(f"a {field.name} is not {2 * width} hexadecimal digits")
        return pa.Array.from_buffers(field.type, len(column), [None, pa.py_buffer(raw)])
    found = column.cast(field.type)
    if field.name == "captions" and found.flatten().null_count:
        raise ValueError("a caption is null")
    return found


def rows_path(index: Path) -> Path:
    """The path of the rows that belong to an index."""
    return index.with_suffix(ENDING)


def mapped_rows(path: Path, digest: str, rows: FileDigest) -> Rows | None:
    """The rows in a file, mapped; None if it is not valid, or not made of the index on record."""
    try:
        with open_regular(path) as file:
            mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        reader = pa.ipc.open_file(pa.BufferReader(mapped))
        about = reader.schema.metadata or {}
        if reader.schema.remove_metadata() != SCHEMA or about.get(_INDEX) != digest.encode():
            return None
        if _AGAIN not in about and any(changed_files(path.parent, {path.name: rows})):
            return None
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)
            nulls = any(batch[one.name].null_count for one in SCHEMA if not one.nullable)
            if nulls or batch["captions"].values.null_count:
                return None
        if any(len(batch) != len(batches[0]) for batch in batches[:-1]) or not batches:
            return None
        return Rows(batches, _shards_of(reader.schema))
    except (BadInput, OSError, ValueError, pa.ArrowException):
        return None


def _shards_of(schema: pa.Schema) -> list[str]:
    names = json.loads(schema.metadata[_SHARDS])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its names of tars are not a list of texts")
    return names


def _part(batch: pa.RecordBatch) -> _Part:
    count, captions = len(batch), batch["captions"]
    texts = captions.values
    return _Part(
        _bytes(batch["key"], count * KEY_BYTES),
        (
            _view(batch["shard"], np.int32, count),
            _view(batch["offset"], np.int64, count),
            _view(batch["size"], np.int32, count),
        ),
        _view(captions, np.int64, count + 1),
        _view(texts, np.int64, len(texts) + 1),
        memoryview(texts.buffers()[2] or b"").cast("B"),  # Arrow's are signed
        _bytes(batch["sha256"], count * SHA256_BYTES),
    )


def _view(array: pa.Array, kind: type[np.generic], count: int) -> memoryview:
    """(count,) the numbers or offsets of an array, whose buffer is missing if it has no values."""
    buffer = array.buffers()[1]
    return (np.frombuffer(buffer, kind, count) if buffer else np.zeros(count, kind)).data


def _bytes(array: pa.Array, size: int) -> memoryview:
    return memoryview(array.buffers()[1] or b"").cast("B")[:size]


def _joined(parts: list[np.ndarray], kind: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.empty(0, kind), *parts]) if len(parts) != 1 else parts[0]
