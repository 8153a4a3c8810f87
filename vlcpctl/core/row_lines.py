"""The lines of files of rows, within bounds, whatever a path turns out to be."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from vlcpctl.core.errors import BadInput, UsageError, unreadable

MOST_LINE_BYTES = 1 << 20  # of a row; a merged gallery of 1000 tasks takes a tenth of it
STDIN = "-"


def lines_of(source: str, name: str) -> Iterator[str]:
    """The lines of a file, or of stdin (`-`), one at a time; `name` is used in messages.

    Raises BadInput if the source cannot be read, is not UTF-8 text or has a line of more than
    MOST_LINE_BYTES, and UsageError if `-` is a terminal.
    """
    try:
        if source == STDIN:
            yield from _texts(_stdin().readline, name)
            return
        require_file_or_pipe(source, name)
        with Path(source).open("rb") as file:
            yield from _texts(file.readline, name)
    except (OSError, ValueError) as error:  # a ValueError for a path that holds a NUL
        raise BadInput(unreadable(name, error)) from error


def _stdin() -> IO[bytes] | IO[str]:
    # Python sets sys.stdin to None if the descriptor was closed before the program started.
    stdin: IO[str] | None = sys.stdin
    if stdin is None:
        raise BadInput("cannot read <stdin>: it is closed")
    if stdin.isatty():
        raise UsageError(
            "'-' reads rows from stdin, which is a terminal; pipe them in, or give a file"
        )
    return getattr(stdin, "buffer", stdin)


def require_file_or_pipe(source: str, name: str) -> None:
    """Raise BadInput for a device or a named pipe, from which reading may never end."""
    mode = Path(source).stat().st_mode
    # The shell's <(...) is a pipe as well, but one without a path of its own.
    is_named_pipe = stat.S_ISFIFO(mode) and not Path(source).resolve().name.startswith("pipe:")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or is_named_pipe:
        raise BadInput(f"cannot read {name}: it is not a regular file; use - to read from stdin")


def _texts(read_line: Callable[[int], bytes | str], name: str) -> Iterator[str]:
    number = 0
    while line := read_line(MOST_LINE_BYTES + 1):
        number += 1
        if len(line) > MOST_LINE_BYTES:
            raise BadInput(
                f"{name}:{number} is longer than {MOST_LINE_BYTES} bytes, so it is not a row"
            )
        yield line if isinstance(line, str) else _decoded(line, f"{name}:{number}")


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{place} is not UTF-8 text: {error}") from error
