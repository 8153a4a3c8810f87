"""Append many buffers to files in few system calls, and start writing them to disk early."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.data.pairs import Bytes

_MOST_PIECES = 1024  # per writev call: IOV_MAX on Linux and macOS
_BEGUN_AFTER = 16 * 2**20  # bytes of a file after which the kernel is asked to write them out


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
