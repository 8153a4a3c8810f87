"""Open input files of unknown origin, and stdin: no named pipe or device blocks."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, cast, final

from vlcpctl.core.errors import BadInput, UsageError, unreadable
from vlcpctl.files.stores import is_stored, open_stored, whole

MOST_LINE_BYTES = 1 << 20  # of a row; a merged gallery of 1000 tasks takes a tenth of it
STDIN = "-"
MOST_TEXT_BYTES = 1 << 26  # of a file that is read at once: class names, templates, counts


def open_regular(path: Path | str, *, buffering: int = -1) -> BinaryIO:
    """A regular file, opened to read bytes; `buffering` is that of `open`.

    Raises BadInput, naming the file, if it cannot be opened or is a directory, pipe, socket or
    device.
    """
    raw, _ = open_with_state(path)
    if buffering == 0:
        return raw
    size = buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE
    return io.BufferedReader(cast("io.RawIOBase", raw), size)


def open_with_state(path: Path | str) -> tuple[BinaryIO, os.stat_result]:
    """A regular file, opened to read bytes without a buffer, and its state when it was opened.

    Raises BadInput as `open_regular` does.
    """
    try:
        if is_stored(path):
            return cast("BinaryIO", open_stored(path)), Path(path).stat()
        # Without O_NONBLOCK, opening a named pipe would block until something writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL or half of a surrogate
        raise BadInput(unreadable(path, error)) from error
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BadInput(f"cannot read {path}: it is not a regular file")
    return cast("BinaryIO", _NamedFile(descriptor, path)), state


@final
class _NamedFile(io.FileIO):
    """A file that errors of reading name, not only those of opening."""

    def __init__(self, descriptor: int, path: Path | str) -> None:
        super().__init__(descriptor)
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        try:  # without a context manager, which takes as long as reading a small file
            return super().read(size)
        except OSError as error:
            raise _naming(error, self._path) from None

    def readall(self) -> bytes:
        with naming_input(self._path):
            return super().readall()

    def readinto(self, buffer: Any, /) -> int:
        with naming_input(self._path):
            return super().readinto(buffer)


@contextmanager
def naming_input(path: Path | str) -> Iterator[None]:
    """Name the file in an error of reading it, such as of a failing disk, which names none."""
    try:
        yield
    except OSError as error:
        raise _naming(error, path) from None


def _naming(error: OSError, path: Path | str) -> OSError:
    if error.filename is None:
        error.filename = str(path)
    return error


def arrow_source(path: Path) -> Path | BinaryIO:
    """What pyarrow can open: the path of the bytes, or an open file if the path is not UTF-8.

    Of a directory, it would read all files, and a pipe would block: raises BadInput as
    `open_regular` does.
    """
    file = open_regular(path)
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return file
    file.close()
    return whole(path)


def open_text(path: Path, *, newline: str | None = None) -> TextIO:
    """A UTF-8 file with or without a byte order mark; `newline` is that of `open`.

    Raises BadInput as `open_regular` does; reading raises UnicodeDecodeError if it is not UTF-8.
    """
    return io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline=newline)


def not_utf8(error: UnicodeDecodeError) -> str:
    """What a file is that is not UTF-8, with the command that converts it, for messages."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if error.object.startswith(marks) else "latin1"
    return (
        f"not UTF-8: {error}; if it is {encoding}, convert it with: "
        f"iconv -f {encoding} -t utf-8 FILE > NEW"
    )


def read_text(path: Path, *, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises BadInput, naming the file, if it cannot be read, is not UTF-8 or exceeds `most_bytes`.
    """
    try:
        with open_regular(path) as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise BadInput(f"cannot read {path}: it has more than {most_bytes} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text: {error}") from error


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
        try:
            text = line if isinstance(line, str) else line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{name}:{number} is not UTF-8 text: {error}") from error
        yield text
