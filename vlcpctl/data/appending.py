"""Append many pieces of memory to files in few calls, and have the disk begin with them early."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.data.pairs import Bytes

_MOST_PIECES = 1024  # that POSIX promises to take in one call
_BEGUN_AFTER = 16 * 2**20  # bytes of one file


class Appender:
    """Appends to any number of files; whoever syncs them at their end finds most of it done."""

    def __init__(self) -> None:
        self._waiting: Counter[Path] = Counter()  # bytes that the disk has not begun with

    def append(self, path: Path, pieces: Sequence[Bytes], *, last: bool = False) -> None:
        """Append the pieces to a file, which is made when it is not there."""
        # Opened anew each time: a stream of a thousand tasks would run out of open files.
        with path.open("ab", buffering=0) as file:
            for first in range(0, len(pieces), _MOST_PIECES):
                part = list(pieces[first : first + _MOST_PIECES])
                self._waiting[path] += _write_all(file.fileno(), part)
            if last or self._waiting[path] >= _BEGUN_AFTER:
                _begin(file.fileno(), self._waiting.pop(path))


def _write_all(descriptor: int, pieces: list[Bytes]) -> int:
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
    """Begin to write the last bytes of a file to the disk, and do not wait."""
    if hasattr(os, "posix_fadvise"):  # Linux takes it as a hint to write what is not written yet
        end = os.lseek(descriptor, 0, os.SEEK_END)
        os.posix_fadvise(descriptor, end - size, size, os.POSIX_FADV_DONTNEED)
