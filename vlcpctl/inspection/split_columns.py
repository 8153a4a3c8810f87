"""The splits of the artifacts under check, and columns of their indexes read in bounded memory.

Shapes: N rows of an index, C captions of all of them together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.data.tasks.facts import SplitCounts, StreamTask
from vlcpctl.data.tasks.index import SPLITS
from vlcpctl.files.inputs import converted, open_regular
from vlcpctl.files.manifest import kind_of, read_manifest

Hashes = NDArray[np.uint64]

# What reading an index that was changed may raise; `check` reports such an index as damage.
UNREADABLE = (BadInput, OSError, ValueError, pa.ArrowException)

_ROWS_AT_ONCE, _LONG_ROWS_AT_ONCE = 50_000, 4096  # captions may be long
_HASH_DIGITS = 16  # of a hex id, 64 bits: enough to tell the images of one machine apart
_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


@dataclass(frozen=True)
class Finding:
    """A flaw in data that is not damage, but makes training or a metric less meaningful."""

    path: Path  # the artifact
    kind: str  # such as "leak"
    text: str  # what was found, with an example and what to do
    count: int
    example: str


@dataclass(frozen=True)
class CheckedSplit:
    """One split of a task or buffer; `given` is the path on the command line that it belongs to."""

    given: Path
    task: Path
    name: str
    images: int
    is_of_buffer: bool = False

    @property
    def index(self) -> Path:
        """The Parquet index."""
        return self.task / f"{self.name}.parquet"

    @property
    def is_trained_on(self) -> bool:
        """Whether its images are for training, as those of a buffer are."""
        return self.name == "train"

    def __str__(self) -> str:
        return f"{self.task} ({self.name})"


def splits_of(paths: Iterable[Path]) -> list[CheckedSplit]:
    """The splits of the streams, tasks and buffers among some artifacts, each directory once.

    Those whose manifest cannot be read are left out: `check` reports them as damage.
    """
    found: dict[str, list[CheckedSplit]] = {}
    for given in paths:
        with suppress(*UNREADABLE):
            for task in _tasks_of(given):
                with suppress(*UNREADABLE):
                    found.setdefault(os.path.realpath(task), list(_splits_in(given, task)))
    return [split for splits in found.values() for split in splits]


def _tasks_of(path: Path) -> list[Path]:
    kind = kind_of(path)
    if kind == "stream":
        tasks = converted(read_manifest(path, kind)["tasks"], list[StreamTask], path)
        return [path / one.path for one in tasks]
    return [path] if kind == "task" else []


def _splits_in(given: Path, task: Path) -> Iterator[CheckedSplit]:
    manifest = read_manifest(task, "task")
    is_of_buffer = manifest.get("buffer") is not None
    for name, split in converted(manifest["splits"], dict[str, SplitCounts], task).items():
        if name in SPLITS:
            yield CheckedSplit(given, task, name, split.images, is_of_buffer)


@contextmanager
def opened_index(index: Path) -> Iterator[BinaryIO]:
    """The index as an open file: Arrow takes no path that is not UTF-8.

    Raises BadInput if it cannot be opened; a pipe is not waited for.
    """
    try:
        with open_regular(index) as file:
            yield file
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(index, error)) from error


def column_batches(index: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some columns in batches. Raises BadInput if they cannot be read."""
    with opened_index(index) as opened:
        try:
            with pq.ParquetFile(opened, pre_buffer=False) as file:
                missing = [name for name in names if name not in file.schema_arrow.names]
                if missing:
                    raise BadInput(f"{index}: has no column {missing[0]!r}")
                rows = _LONG_ROWS_AT_ONCE if "captions" in names else _ROWS_AT_ONCE
                yield from file.iter_batches(rows, columns=names, use_threads=False)
        except pa.ArrowException as error:
            raise BadInput(unreadable(index, error)) from error


def id_hashes(index: Path, column: str) -> Hashes:
    """(N,) uint64: the first 64 bits of a column of ids in hex, such as `sha256` or `key`.

    Raises BadInput if the index cannot be read, or an id is not lower-case hex digits.
    """
    parts = [_bits(batch.column(0), index, column) for batch in column_batches(index, [column])]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _bits(ids: pa.Array, index: Path, name: str) -> Hashes:
    ids = as_text(ids, index, name)
    if not len(ids):
        return np.empty(0, np.uint64)
    widths = pc.unique(pc.binary_length(ids)).to_pylist()
    width = widths[0] or 0
    if ids.null_count or len(widths) > 1 or width < _HASH_DIGITS:
        raise BadInput(f"{index}: column {name!r} has ids of another length, or none")
    start = int(np.frombuffer(ids.buffers()[1], np.int32)[ids.offset])
    text = np.frombuffer(ids.buffers()[2], np.uint8, len(ids) * width, start)
    digits = _NIBBLES[text.reshape(len(ids), width)[:, :_HASH_DIGITS]]
    if digits.max() > 15:
        raise BadInput(f"{index}: column {name!r} has an id that is not in hex digits")
    pairs = (digits[:, ::2] << 4 | digits[:, 1::2]).astype(np.uint8)
    return np.ascontiguousarray(pairs).view(">u8")[:, 0].astype(np.uint64)


def as_text(values: pa.Array, index: Path, name: str) -> pa.Array:
    """The values as Arrow strings. Raises BadInput if they are of another type."""
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise BadInput(f"{index}: column {name!r} is {values.type}, not text") from error


def value_at(index: Path, column: str, row: int) -> Any:
    """The value of a column at a row. Raises BadInput if it cannot be read."""
    for batch in column_batches(index, [column]):
        if row < len(batch):
            return batch.column(0)[row].as_py()
        row -= len(batch)
    raise BadInput(f"{index} has fewer rows than before: it changed while it was being checked")


def listed(names: Iterable[object], most: int = 3) -> str:
    """A few names, and how many others there are.

    >>> listed("abcde")
    'a, b, c and 2 more'
    """
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
