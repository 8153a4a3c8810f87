"""Checks of the rows of an index, before images are read by them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.limits import MOST_CAPTION_BYTES
from vlcpctl.core.printable import printable


def is_file_name(name: str) -> bool:
    """Whether a name from an untrusted file is safe as one component of a path.

    >>> is_file_name("train-000000.tar"), is_file_name("../x"), is_file_name("")
    (True, False, False)
    """
    usable = name not in {"", ".", ".."} and "/" not in name and "\\" not in name
    return usable and printable(name) == name and len(os.fsencode(name)) <= 255


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
    try:
        table.validate(full=True)
    except pa.ArrowException:
        yield f"{path}: a text is not UTF-8, or a list of captions is malformed"
        return
    at = _Rows(table, path)
    yield from _place_problems(table, at, shards)
    for name in ("width", "height"):
        yield from at.where(table[name].to_numpy() < 1, f"{name} is less than 1")
    yield from _caption_problems(table["captions"].combine_chunks(), at)
    for name in kept:
        yield from _kept_problems(name, table[name].combine_chunks(), at)


class _Rows:
    """Messages that name the first of some rows."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        self._keys, self._path = table["key"], path

    def where(self, wrong_N: np.ndarray, what: str) -> Iterator[str]:
        """Yield `what` with the first row at which `wrong_N` is true, if any."""
        rows = np.flatnonzero(wrong_N)
        if len(rows):
            key = self._keys[int(rows[0])].as_py()
            yield f"{self._path}, row {rows[0]} (key {printable(key):.80}): {what}"


def _place_problems(table: pa.Table, at: _Rows, shards: Mapping[str, int]) -> Iterator[str]:
    """Yield mistakes of the columns shard, offset and size."""
    coded = table["shard"].combine_chunks().dictionary_encode()
    shard_N = np.asarray(coded.indices)
    names = coded.dictionary.to_pylist()
    for code, name in enumerate(names):
        if name not in shards:
            listed = f"refers to shard {printable(name)!r:.100}, which task.json does not list"
            yield from at.where(shard_N == code, listed)
    offset_N, size_N = (table[name].to_numpy().astype(np.int64) for name in ("offset", "size"))
    yield from at.where(offset_N < 0, "its offset is negative")
    yield from at.where(size_N < 1, "its size is less than 1")
    ends = np.array([shards.get(name, np.iinfo(np.int64).max) for name in names], dtype=np.int64)
    if len(ends):
        # Not offset + size > end, which could overflow.
        beyond = (offset_N >= 0) & (size_N > 0) & (offset_N > ends[shard_N] - size_N)
        yield from at.where(beyond, "its image would extend past the end of its shard")


def _caption_problems(captions: pa.ListArray, at: _Rows) -> Iterator[str]:
    """Yield mistakes of the captions, one list per image."""
    yield from at.where(_with_null(captions), "one of its captions is null")
    yield from at.where(np.diff(captions.offsets.to_numpy()) == 0, "it has no caption")
    long_N = _bytes_of(captions) > MOST_CAPTION_BYTES
    yield from at.where(long_N, f"it has more than {MOST_CAPTION_BYTES} bytes of captions")


def _kept_problems(name: str, values: pa.ListArray, at: _Rows) -> Iterator[str]:
    """Yield mistakes of a column that was kept from the sources, one list per image."""
    yield from at.where(_with_null(values), f"one of its values of {name!r:.80} is null")
    long_N = _bytes_of(values) > MOST_CAPTION_BYTES
    yield from at.where(long_N, f"it has more than {MOST_CAPTION_BYTES} bytes in {name!r:.80}")


def _with_null(lists: pa.ListArray) -> np.ndarray:
    """(N,) bool: whether a list of texts has a null among them."""
    has_null_N = np.zeros(len(lists), dtype=bool)
    if lists.values.null_count:
        null = np.flatnonzero(lists.values.is_null().to_numpy(zero_copy_only=False))
        has_null_N[np.searchsorted(lists.offsets.to_numpy(), null, side="right") - 1] = True
    return has_null_N


def _bytes_of(lists: pa.ListArray) -> np.ndarray:
    """(N,) int64: the bytes of the texts of each list, and one for each text."""
    starts = lists.offsets.to_numpy()
    texts = lists.values.fill_null("")
    # One more byte for each, so that their number is limited as well.
    bytes_T = pc.binary_length(texts).to_numpy().astype(np.int64) + 1
    total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(bytes_T)])
    bytes_N: np.ndarray = total[starts[1:]] - total[starts[:-1]]
    return bytes_N
