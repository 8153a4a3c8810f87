"""The USTAR blocks of a sample, and appending many of them to a file in few system calls.

Equal samples give equal bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from json.encoder import encode_basestring as quoted
from pathlib import Path

from vlcpctl.data.images.header import Bytes
from vlcpctl.data.tasks.samples import Pair

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
