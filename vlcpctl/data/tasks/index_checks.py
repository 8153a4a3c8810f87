"""Checks of the rows of an index, before images are read by them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import printable
from vlcpctl.data.tasks.keys import KEY_BYTES, text_buffers, unhex
from vlcpctl.data.tasks.rows import SHA256_BYTES, Rows

MOST_CAPTION_BYTES = 1 << 24  # of all captions of one image
_ROWS_AT_ONCE = 1 << 14  # few enough that the arrays of a check take little memory


def file_size(path: Path) -> int:
    """The size of a regular file in bytes. Raises BadInput if there is none at `path`."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(path, error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"cannot read {path}: it is not a regular file")
    return found.st_size


def row_problems(
    table: pa.Table, path: Path, shards: Mapping[str, int], kept: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a line for each kind of mistake in the rows of an index, naming the first such row.

    `shards` maps the tars that the manifest lists to their sizes in bytes; `kept` are the columns
    that it lists as kept from the sources.
    """
    finder = RowProblems(path, shards, kept)
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from finder.of_batch(batch)


class RowProblems:
    """Finds mistakes in the rows of an index, batch by batch; each kind is reported once.

    The arguments are those of `row_problems`.
    """

    def __init__(self, path: Path, shards: Mapping[str, int], kept: Sequence[str] = ()) -> None:
        self._path, self._shards, self._kept = path, shards, kept
        self._first = 0  # the number of the batch's first row
        self._found: set[str] = set()

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[str]:
        """Yield a line for each kind of mistake in the next rows of a Parquet index."""
        try:
            batch.validate(full=True)
        except pa.ArrowException:
            yield f"{self._path}: a text is not UTF-8, or a list of captions is malformed"
            return
        at = self._messages(lambda row: str(batch["key"][row].as_py()))
        yield from _digit_problems(batch, at)
        coded = batch["shard"].dictionary_encode()
        names, shard_N = coded.dictionary.to_pylist(), np.asarray(coded.indices)
        offset_N, size_N = (batch[name].to_numpy() for name in ("offset", "size"))
        yield from _place_problems(names, (shard_N, offset_N, size_N), at, self._shards)
        for name in ("width", "height"):
            yield from at.where(batch[name].to_numpy() < 1, f"{name} is less than 1")
        yield from _captions_of(batch["captions"], at)
        for name in self._kept:
            yield from _kept_problems(name, batch[name], at)
        self._first += len(batch)

    def of_rows(self, rows: Rows) -> Iterator[str]:
        """Yield a line for each kind of mistake in rows of a file of rows, which are valid."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            keys = rows.keys[part]
            at = self._messages(keys.__getitem__)
            numbers = rows.shard_N[part], rows.offset_N[part], rows.size_N[part]
            yield from _place_problems(rows.shards, numbers, at, self._shards)
            lists = rows.lists[start : start + _ROWS_AT_ONCE + 1]
            yield from _caption_problems(lists, rows.ends, at)
            self._first += len(keys)

    def _messages(self, key_of: Callable[[int], str]) -> _Messages:
        return _Messages(self._path, self._first, key_of, self._found)


class _Messages:
    """Messages that name the first of some rows of a batch."""

    def __init__(
        self, path: Path, first: int, key_of: Callable[[int], str], found: set[str]
    ) -> None:
        self._path, self._first, self._key_of, self._found = path, first, key_of, found

    def where(self, wrong_N: np.ndarray, what: str) -> Iterator[str]:
        """Yield `what` with the first row at which `wrong_N` is true, if any."""
        rows = np.flatnonzero(wrong_N)
        if len(rows) and what not in self._found:
            self._found.add(what)
            row = int(rows[0])
            key = printable(self._key_of(row))
            yield f"{self._path}, row {self._first + row} (key {key:.80}): {what}"


def _digit_problems(batch: pa.RecordBatch, at: _Messages) -> Iterator[str]:
    """Yield mistakes of the columns key and sha256."""
    for name, width in (("key", KEY_BYTES), ("sha256", SHA256_BYTES)):
        if unhex(batch[name], width) is None:
            right = pc.match_substring_regex(batch[name], f"^[0-9a-f]{{{2 * width}}}$")
            wrong = ~right.to_numpy(zero_copy_only=False)
            yield from at.where(wrong, f"its {name} is not {2 * width} hexadecimal digits")


def _place_problems(
    names: Sequence[str],
    places: tuple[np.ndarray, np.ndarray, np.ndarray],
    at: _Messages,
    shards: Mapping[str, int],
) -> Iterator[str]:
    """Yield mistakes of the columns shard, as an index into `names`, offset and size."""
    shard_N, offset_N, size_N = places
    for code, name in enumerate(names):
        if name not in shards:
            listed = f"refers to shard {printable(name)!r:.100}, which task.json does not list"
            yield from at.where(shard_N == code, listed)
    yield from at.where(offset_N < 0, "its offset is negative")
    yield from at.where(size_N < 1, "its size is less than 1")
    ends = np.array([shards.get(name, np.iinfo(np.int64).max) for name in names], dtype=np.int64)
    if len(ends):
        # Not offset + size > end, which could overflow.
        beyond = (offset_N >= 0) & (size_N > 0) & (offset_N > ends[shard_N] - size_N)
        yield from at.where(beyond, "its image would extend past the end of its shard")


def _captions_of(captions: pa.ListArray, at: _Messages) -> Iterator[str]:
    """Yield mistakes of the captions of a Parquet index, one list per image."""
    yield from at.where(_with_null(captions), "one of its captions is null")
    yield from _caption_problems(captions.offsets.to_numpy(), _ends_of(captions), at)


def _caption_problems(lists: np.ndarray, ends: np.ndarray, at: _Messages) -> Iterator[str]:
    """Yield mistakes of lists of captions, given where the n + 1 lists and all texts end."""
    yield from at.where(np.diff(lists) == 0, "it has no caption")
    long_N = _bytes_of(lists, ends) > MOST_CAPTION_BYTES
    yield from at.where(long_N, f"it has more than {MOST_CAPTION_BYTES} bytes of captions")


def _kept_problems(name: str, values: pa.ListArray, at: _Messages) -> Iterator[str]:
    """Yield mistakes of a column that was kept from the sources, one list per image."""
    yield from at.where(_with_null(values), f"one of its values of {name!r:.80} is null")
    long_N = _bytes_of(values.offsets.to_numpy(), _ends_of(values)) > MOST_CAPTION_BYTES
    yield from at.where(long_N, f"it has more than {MOST_CAPTION_BYTES} bytes in {name!r:.80}")


def _with_null(lists: pa.ListArray) -> np.ndarray:
    """(N,) bool: whether a list of texts has a null among them."""
    has_null_N = np.zeros(len(lists), dtype=bool)
    if lists.values.null_count:
        starts = lists.offsets.to_numpy()
        null = np.flatnonzero(lists.values.is_null().to_numpy(zero_copy_only=False))
        null = null[(null >= starts[0]) & (null < starts[-1])]  # the values are of all rows
        has_null_N[np.searchsorted(starts, null, side="right") - 1] = True
    return has_null_N


def _ends_of(lists: pa.ListArray) -> np.ndarray:
    """(T + 1,) int: where all T texts of lists end, counted in bytes."""
    return text_buffers(lists.values)[0]


def _bytes_of(lists: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(n,) int64: the bytes of the texts of each list, and one for each text.

    The latter limits the number of texts, too.
    """
    bytes_N: np.ndarray = np.diff(ends[lists].astype(np.int64)) + np.diff(lists)
    return bytes_N
