"""Append many pieces of memory to a file in few calls."""

from __future__ import annotations

import os
from pathlib import Path

from vlcpctl.data.pairs import Bytes

_MOST_PIECES = 1024  # that POSIX promises to take in one call


def append_to(path: Path, pieces: list[Bytes]) -> None:
    """Append the pieces to a file, which is made when it is not there."""
    # Opened anew each time: a stream of a thousand tasks would run out of open files.
    with path.open("ab", buffering=0) as file:
        for first in range(0, len(pieces), _MOST_PIECES):
            _write_all(file.fileno(), pieces[first : first + _MOST_PIECES])


def _write_all(descriptor: int, pieces: list[Bytes]) -> None:
    left = sum(map(len, pieces))
    while True:
        written = os.writev(descriptor, pieces)
        left -= written
        if left == 0:
            return
        while written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        pieces[0] = memoryview(pieces[0])[written:]
