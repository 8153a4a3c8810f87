"""Write one split of a task: its tars, and the index that locates each image in them.

Equal samples give equal bytes. The images of a split that is made in place stay in tars of others,
and its tars are links to those.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import repeat
from json.encoder import encode_basestring as quoted
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import is_decimal
from vlcpctl.data.images.header import Bytes
from vlcpctl.data.tasks.facts import SplitManifest, file_facts
from vlcpctl.data.tasks.index import IndexWriter, schema_with
from vlcpctl.data.tasks.samples import KeptValues, Pair, united

DEFAULT_SHARD_BYTES = 256_000_000
_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}

BLOCK = 512
END = bytes(2 * BLOCK)

# Header fields that are the same for every member: mode, owner and group; mtime 0, as a real time
# would make equal samples differ; everything from the type flag to the end.
_OWNER = b"0000644\0" + 2 * b"0000000\0"
_TIME = b"\0" + b"00000000000\0"
_TAIL = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(247)
_NAME_LENGTH, _KEY_LENGTH = 100, 32
_PADDING = [bytes(-size % BLOCK) for size in range(BLOCK)]

_MOST_PIECES = 1024  # per writev call: IOV_MAX on Linux and macOS
_BEGUN_AFTER = 16 * 2**20  # bytes of a file after which the kernel starts to write them out
_ROWS_AT_ONCE = 2048

# From keys of a split to further kept values of those that have some.
MoreValues = Callable[[list[str]], Mapping[str, KeptValues]]
Place = tuple[str, int, int]  # the name of a tar, and the offset and size of an image in it


def parse_bytes(text: str) -> int:
    """A size such as 256MB or 1GiB in bytes. Raises UsageError if it is not one.

    >>> parse_bytes("256MB"), parse_bytes("1 KiB"), parse_bytes("300")
    (256000000, 1024, 300)
    """
    cleaned = text.replace(" ", "").upper()
    number = cleaned.rstrip("KMGIB")
    unit = cleaned[len(number) :] or "B"
    if unit not in _UNITS or not is_decimal(number):
        raise UsageError(f"{text!r} is not a size; write it like 256MB or 1GiB")
    size = int(float(number) * _UNITS[unit])
    if not 1 <= size < 2**63:
        what = "less than one byte" if size < 1 else "too large"
        raise UsageError(f"{text!r} is {what}; write it like 256MB or 1GiB")
    return size


def frame(sample: Pair, task: str) -> tuple[bytes, bytes]:
    """The bytes before and after the image of a sample in its tar; those before are one block.

    The image itself is not copied into a new string, so that writing a sample copies nothing large.
    """
    key = sample.key.encode()
    key_sum = sum(key)
    text = caption_text(sample.captions)
    described = description(sample, task)
    image_field, image_sum = _fixed(sample.kind, len(sample.data))
    text_field, text_sum = _fixed("txt", len(text))
    described_field, described_sum = _fixed("json", len(described))
    before = b"".join((key, image_field, _checksum(key_sum + image_sum), _TAIL))
    after = b"".join(
        (
            _PADDING[len(sample.data) % BLOCK],
            key,
            text_field,
            _checksum(key_sum + text_sum),
            _TAIL,
            text,
            _PADDING[len(text) % BLOCK],
            key,
            described_field,
            _checksum(key_sum + described_sum),
            _TAIL,
            described,
            _PADDING[len(described) % BLOCK],
        )
    )
    return before, after


def caption_text(captions: list[str]) -> bytes:
    r"""The .txt member: one caption per line, newlines inside a caption written as `\n`.

    >>> caption_text(["a cat", "two\nlines"]).decode()
    'a cat\ntwo\\nlines'
    """
    return "\n".join([caption.replace("\n", "\\n") for caption in captions]).encode()


def description(sample: Pair, task: str) -> bytes:
    """The .json member: the sample's fields in the index, for programs that read only the tars."""
    # Formatted by hand: json.dumps takes as long as everything else done for a small image.
    source_key = "null" if sample.source_key is None else quoted(sample.source_key)
    label = "null" if sample.label is None else quoted(sample.label)
    captions = ", ".join(map(quoted, sample.captions))
    return (
        f'{{"key": "{sample.key}", "source_key": {source_key}, "label": {label}, '
        f'"task": {quoted(task)}, "captions": [{captions}], "width": {sample.width}, '
        f'"height": {sample.height}, "sha256": "{sample.sha256}"}}'
    ).encode()


def header(key: str, extension: str, size: int) -> bytes:
    """The 512-byte header block of the member `key`.`extension` with `size` bytes of data."""
    name = key.encode()
    fixed, fixed_sum = _fixed(extension, size)
    return b"".join((name, fixed, _checksum(sum(name) + fixed_sum), _TAIL))


@cache  # only a few thousand different sums occur
def _checksum(total: int) -> bytes:
    return b"%06o\0 " % total


@lru_cache(maxsize=8192)
def _fixed(extension: str, size: int) -> tuple[bytes, int]:
    """The part of a header that does not depend on the key, and the sum of its bytes."""
    before, before_sum = _before_size(extension)
    digits = b"%011o" % size
    return before + digits + _TIME, before_sum + sum(digits)


@cache
def _before_size(extension: str) -> tuple[bytes, int]:
    """The header bytes between key and size, and the byte sum of all but those two fields."""
    suffix = f".{extension}".encode().ljust(_NAME_LENGTH - _KEY_LENGTH, b"\0")
    before = suffix + _OWNER
    # The checksum counts its own field as eight spaces.
    return before, sum(before) + sum(_TIME) + sum(_TAIL) + 8 * ord(" ")


class Appender:
    """Appends to any number of files; most data is on disk before the final fsync, which is short.

    Nothing is buffered here, so there is nothing to close.
    """

    def __init__(self) -> None:
        self._waiting: Counter[Path] = Counter()  # bytes not yet handed to the disk

    def append(self, path: Path, pieces: Sequence[Bytes], *, last: bool = False) -> None:
        """Append the pieces to a file, which is created if necessary; `last` ends the file.

        Raises OSError if the disk is full.
        """
        # Reopened each time: with a thousand tasks the process would run out of file descriptors.
        with path.open("ab", buffering=0) as file:
            for first in range(0, len(pieces), _MOST_PIECES):
                part = list(pieces[first : first + _MOST_PIECES])
                self._waiting[path] += _write_all(file.fileno(), part)
            if last or self._waiting[path] >= _BEGUN_AFTER:
                _begin(file.fileno(), self._waiting.pop(path))


def _write_all(descriptor: int, pieces: list[Bytes]) -> int:
    """Write all pieces, although one call may write only a part; returns the number of bytes."""
    left = total = sum(map(len, pieces))
    while True:
        written = os.writev(descriptor, pieces)
        left -= written
        if left == 0:
            return total
        while written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        pieces[0] = memoryview(pieces[0])[written:]


def _begin(descriptor: int, size: int) -> None:
    """Start writing the last `size` bytes of a file to disk, without waiting for it."""
    # DONTNEED makes Linux start the write-back of dirty pages; it cannot drop them before that.
    if hasattr(os, "posix_fadvise"):
        end = os.lseek(descriptor, 0, os.SEEK_END)
        os.posix_fadvise(descriptor, end - size, size, os.POSIX_FADV_DONTNEED)


class TarWriter:
    """Appends samples to the numbered tars of a split.

    `counts` are the numbers of samples by tar, `bytes` those of tars, complete after `close`. The
    first tar has number `first`: one that exists may be hard-linked from elsewhere and is never
    appended to.
    """

    def __init__(
        self,
        directory: Path,
        split: str,
        appender: Appender,
        shard_bytes: int = DEFAULT_SHARD_BYTES,
        first: int = 0,
    ) -> None:
        self.directory, self.counts, self.bytes = directory, Counter[str](), 0
        self._split, self._appender, self._next = split, appender, first
        self._room, self._used, self._name = shard_bytes - len(END), 0, ""

    def add(self, samples: Sequence[Pair], tasks: Iterable[str]) -> list[Place]:
        """Append samples of these tasks, and return where the image of each is.

        The images have been written when this returns.
        """
        pieces: list[Bytes] = []
        places = []
        for sample, task in zip(samples, tasks, strict=False):
            before, after = frame(sample, task)
            size = len(sample.data)
            length = BLOCK + size + len(after)
            if not self._name or (self._used and self._used + length > self._room):
                self._append(pieces)
                self.close()
                pieces = []
                self._name = f"{self._split}-{self._next:06d}.tar"
                self._next += 1
            places.append((self._name, self._used + BLOCK, size))
            pieces += (before, sample.data, after)
            self._used += length
            self.counts[self._name] += 1
        self._append(pieces)
        return places

    def close(self) -> None:
        """Finish the last tar."""
        if self._name:
            self._append([END], last=True)
            self.bytes += self._used + len(END)
            self._name, self._used = "", 0

    def _append(self, pieces: list[Bytes], *, last: bool = False) -> None:
        if pieces:
            self._appender.append(self.directory / self._name, pieces, last=last)


class TarLinks:
    """Lists samples where they are, in tars of others, and links to each tar that has some."""

    def __init__(self, directory: Path, split: str) -> None:
        self.directory, self.counts, self.bytes = directory, Counter[str](), 0
        self._split, self._names = split, dict[Path, str]()

    def add(self, samples: Sequence[Pair], _tasks: Iterable[str]) -> list[Place]:
        """As `TarWriter.add`, for samples whose tar and offset are known."""
        return [self._place(sample) for sample in samples]

    def close(self) -> None:
        """Do nothing: the tars of others are complete."""

    def _place(self, sample: Pair) -> Place:
        assert sample.where is not None, "samples that are split in place"
        tar, offset = sample.where
        name = self._names.get(tar)
        if name is None:
            name = self._names[tar] = f"{self._split}-{len(self._names):06d}.tar"
            (self.directory / name).symlink_to(tar)
        self.counts[name] += 1
        self.bytes += len(sample.data)
        return name, offset, len(sample.data)


class SplitWriter:
    """Appends samples of a task to the tars of a split and its index."""

    def __init__(
        self, split: str, task: str, tars: TarWriter | TarLinks, kept: tuple[str, ...] = ()
    ) -> None:
        self._split, self._task, self._tars, self._captions = split, task, tars, 0
        self._index = IndexWriter(tars.directory / f"{split}.parquet", schema_with(kept))

    def extend(self, samples: list[Pair]) -> None:
        """Append samples; their images have been written when this returns."""
        places = self._tars.add(samples, repeat(self._task))
        self._index.extend(
            (
                *(one.key, one.source_key, *place, one.captions, one.label, self._task),
                *(one.width, one.height, one.sha256, *one.kept),
            )
            for one, place in zip(samples, places, strict=True)
        )
        self._captions += sum([len(one.captions) for one in samples])

    @property
    def lacking(self) -> dict[str, int]:
        """The number of images without a value in each kept column, after `close`."""
        return self._index.lacking

    def close(self, repeats: MoreValues | None = None) -> SplitManifest:
        """Finish the last shard and the index, and return the split's entry in the manifest.

        `repeats` gives the kept values of rows that repeat a sample, by its key.
        """
        self._tars.close()
        self._index.close()
        if repeats is not None:
            self._index = with_more_values(self._index, repeats)
        shards = tuple(self._tars.counts)
        return SplitManifest(
            images=self._tars.counts.total(),
            captions=self._captions,
            shards=shards,
            bytes=self._tars.bytes,
            content=self._index.content.hexdigest(),
            **file_facts(self._tars.directory, self._split, shards),
        )

    def abandon(self) -> None:
        """Close open files after an error."""
        self._index.abandon()


def with_more_values(index: IndexWriter, more: MoreValues) -> IndexWriter:
    """Rewrite a closed index with further values in its kept columns; returns the new writer.

    A repeated pair is found after its first row was written, which may be in another task.
    """
    old = index.path.with_suffix(".old")
    index.path.rename(old)
    new = IndexWriter(index.path, index.schema)
    try:
        with pq.ParquetFile(old, pre_buffer=False) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                columns = batch.to_pydict()
                _add(columns, more(columns["key"]), list(index.lacking))
                new.extend(zip(*columns.values(), strict=True))
        new.close()
    except BaseException:
        new.abandon()
        raise
    old.unlink()
    return new


def _add(columns: dict[str, list[Any]], more: Mapping[str, KeptValues], kept: list[str]) -> None:
    for row, key in enumerate(columns["key"]):
        if key in more:
            values = united([columns[name][row] for name in kept], more[key])
            for name, found in zip(kept, values, strict=True):
                columns[name][row] = found
