"""Append many pieces of memory to a file in one call."""

from __future__ import annotations

import os
from pathlib import Path

from vlcpctl.data.pairs import Bytes

MAX_PIECES = 1023  # POSIX promises 1024 per call


def append_to(path: Path, pieces: list[Bytes]) -> None:
    """Append the pieces to a file, which is made when it is not there."""
    # Opened anew each time: a stream of a thousand tasks would run out of open files.
    with path.open("ab", buffering=0) as file:
        left = sum(map(len, pieces))
        while True:
            written = os.writev(file.fileno(), pieces)
            left -= written
            if left == 0:
                return
            while written >= len(pieces[0]):
                written -= len(pieces.pop(0))
            pieces[0] = memoryview(pieces[0])[written:]
