"""Inputs of unknown origin: opened so that nothing blocks, read within limits, as text or JSON.

What cannot be read is a BadInput of one line that names the file. An error of the machine, such as
a failing disk, stays an OSError, which names the file, too.
"""

from __future__ import annotations

import errno
import glob
import io
import json
import os
import re
import resource
import stat
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TextIO, TypeVar, cast, final

import msgspec

from vlcpctl.core.errors import BadInput, UsageError, VlcpError, lfs_pointer, unreadable
from vlcpctl.files.stores import is_stored, whole

STDIN = "-"
MOST_TASKS = 10_000  # in a stream, or learned in a run
MOST_LINE_BYTES = 1 << 20  # of a row; a merged gallery of 1000 tasks takes a tenth of it
MOST_TEXT_BYTES = 1 << 26  # of a file that is read at once: class names, templates, counts
MOST_JSON_BYTES = 1 << 28

# What the system reports for other reasons than the file.
_OF_THE_MACHINE = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# The base classes of libraries' own errors; only libraries that are imported can raise theirs.
_BASES = {"pyarrow": "ArrowException", "safetensors": "SafetensorError"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # perhaps half of a pair
_T = TypeVar("_T")


def open_regular(path: Path | str, *, buffering: int = -1) -> BinaryIO:
    """A regular file, opened to read bytes; `buffering` is that of `open`.

    Raises BadInput, naming the file, if it cannot be opened or is a directory, pipe, socket or
    device.
    """
    raw = _NamedFile(descriptor_of(path)[0])
    raw.path = path
    if buffering == 0:
        return cast("BinaryIO", raw)
    size = buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE
    return io.BufferedReader(raw, size)


def descriptor_of(path: Path | str) -> tuple[int, os.stat_result]:
    """A regular file, opened to read bytes, and its state when it was opened.

    A file object takes as long as reading a small file. Raises BadInput as `open_regular` does.
    """
    try:
        place = whole(Path(path)) if is_stored(path) else path
        # Without O_NONBLOCK, opening a named pipe would block until something writes to it.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL or half of a surrogate
        raise BadInput(unreadable(path, error)) from error
    state = os.fstat(descriptor) if place is path else Path(path).stat()
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise BadInput(f"cannot read {path}: it is not a regular file")
    return descriptor, state


@final
class _NamedFile(io.FileIO):
    """A file that errors of reading name, not only those of opening."""

    path: Path | str

    def read(self, size: int | None = -1, /) -> bytes:
        try:  # without a context manager, which takes as long as reading a small file
            return super().read(size)
        except OSError as error:
            raise _naming(error, self.path) from None

    def readall(self) -> bytes:
        with naming_input(self.path):
            return super().readall()

    def readinto(self, buffer: Any, /) -> int:
        with naming_input(self.path):
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


@contextmanager
def reading(path: Path, what: str = "", *, error: type[VlcpError] = BadInput) -> Iterator[None]:
    """Within the block, what a library raises for bytes that it cannot read is `error`.

    Its message is `what`, or "cannot read PATH", and the library's first line. An error
    of the system, such as a failing disk, stays an OSError and gets the name of the file.

    >>> with reading(Path("pairs.json")):
    ...     raise ValueError("cut short")
    Traceback (most recent call last):
    vlcpctl.core.errors.BadInput: cannot read pairs.json: cut short
    """
    own = [getattr(sys.modules[name], base) for name, base in _BASES.items() if name in sys.modules]
    try:
        yield
    # Names that are not UTF-8 are a ValueError of pyarrow, some damage an OSError without errno.
    except (OSError, ValueError, OverflowError, *own) as found:
        if isinstance(found, OSError) and found.errno in _OF_THE_MACHINE:
            raise _naming(found, path) from None
        message = unreadable(path, found)
        said = f"{what}: {message.removeprefix(f'cannot read {path}: ')}" if what else message
        raise error(said) from found


def matching(pattern: str) -> list[str]:
    """The paths that a glob matches as in a shell, sorted: none that is hidden."""
    return sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern


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


def read_text(path: Path, *, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises BadInput, naming the file, if it cannot be read, is not UTF-8 or exceeds `most_bytes`.
    """
    with open_regular(path) as file, reading(path):
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise BadInput(f"cannot read {path}: it has {size} bytes, over {most_bytes}")
        return file.read().decode("utf-8-sig")


def lines_of(source: str, name: str) -> Iterator[str]:
    """The lines of a file or pipe, or of stdin (`-`), one at a time; `name` is used in messages.

    Raises BadInput if the source cannot be read, is not UTF-8 text or has a line of more than
    MOST_LINE_BYTES, and UsageError if `-` is a terminal.
    """
    number = 0
    try:
        with _stdin() if source == STDIN else _regular_or_pipe(source, name) as file:
            while line := file.readline(MOST_LINE_BYTES + 1):
                number += 1
                if len(line) > MOST_LINE_BYTES:
                    raise BadInput(f"{name}:{number} is longer than {MOST_LINE_BYTES} bytes")
                yield line if isinstance(line, str) else line.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}:{number} is not UTF-8 text: {error}") from error
    except (OSError, ValueError) as error:  # a ValueError for a path that holds a NUL
        raise BadInput(unreadable(name, error)) from error


@contextmanager
def _stdin() -> Iterator[IO[bytes] | IO[str]]:
    # Python sets sys.stdin to None if the descriptor was closed before the program started.
    stdin: IO[str] | None = sys.stdin
    if stdin is None:
        raise BadInput("cannot read <stdin>: it is closed")
    if stdin.isatty():
        raise UsageError("'-' is stdin, which is a terminal; pipe the lines in, or give a file")
    yield getattr(stdin, "buffer", stdin)


def _regular_or_pipe(source: str, name: str) -> IO[bytes]:
    """A file to read lines of; not a device or a named pipe, which may never end."""
    mode = Path(source).stat().st_mode
    # The shell's <(...) is a pipe as well, but one without a path of its own.
    is_named_pipe = stat.S_ISFIFO(mode) and not Path(source).resolve().name.startswith("pipe:")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or is_named_pipe:
        raise BadInput(f"cannot read {name}: it is not a regular file; use - to read from stdin")
    return Path(source).open("rb")


def parse_json(text: str | bytes) -> Any:
    r"""The value of a JSON text. Raises ValueError, whose message says what is wrong.

    Halves of surrogate pairs are refused: they are not text, and could not be written again.

    >>> parse_json(r'{"name": "\ud800"}')
    Traceback (most recent call last):
    ValueError: it contains half of a surrogate pair, which is not text
    """
    words = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = json.loads(words)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\u" in words and _SURROGATE.search(words):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("it contains half of a surrogate pair, which is not text") from error
    return value


def read_json(path: Path, *, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """The value in a JSON file. Raises BadInput, naming the file, if it cannot be read."""
    text = read_text(path, most_bytes=most_bytes)
    try:
        return parse_json(text)
    except ValueError as error:
        raise BadInput(lfs_pointer(path) or f"{path} is not readable JSON: {error}") from error


def read_json_object(path: Path, *, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """The object in a JSON file. Raises BadInput, naming the file, if there is none."""
    return converted(read_json(path, most_bytes=most_bytes), dict[str, Any], path)


def decoded(decoder: msgspec.json.Decoder[_T], text: str | bytes, place: object) -> _T:
    """The value of a JSON text; `place` (a file, or FILE:LINE) is used in messages.

    Raises BadInput, in one line, if it is no JSON or has another form than the decoder's.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}: {error}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadInput(f"{place} is not readable JSON: {error}") from error


def converted(value: object, kind: type[_T], place: object) -> _T:
    """A value of JSON as a value of a type, such as a dataclass, whose fields it has by name.

    A dataclass takes the fields that it has and ignores others. Raises BadInput, in one line, with
    `place` and the path of the field that is missing or of another type.

    >>> converted([[1, 2], [3, 4]], list[tuple[int, int]], "sizes.json")
    [(1, 2), (3, 4)]
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}: {error}") from error


_MOST_OPEN: Final = 1024
_owned: OrderedDict[tuple[int, int], int] = OrderedDict()  # by owner and file: the descriptor


@final
class OpenFiles:
    """The files at some paths: opened when they are first read, and closed with this object.

    A data set may have thousands, but a process may usually open only 1024: of all such objects,
    the file opened first is closed when too many are open. Only one thread may use such objects:
    another could close a file, and open another one by the same descriptor, before it is read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = paths
        weakref.finalize(self, _close_all, id(self))

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[Sequence[Path]]]:
        return OpenFiles, (self.paths,)  # a copy in another process opens its own

    def descriptor(self, number: int) -> int:
        """The descriptor of the file at `paths[number]`; valid until this is called again.

        Only for reads with a position of their own, such as os.pread. Raises OSError if the file
        cannot be opened.
        """
        found = _owned.get((id(self), number))
        if found is None:
            while len(_owned) >= most_open():
                os.close(_owned.popitem(last=False)[1])
            # A pipe that takes the place of a file must not block.
            found = os.open(self.paths[number], os.O_RDONLY | os.O_NONBLOCK)
            _owned[id(self), number] = found
        return found


def most_open() -> int:
    """How many such files are kept open in this process: a quarter of what it may (ulimit -n)."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_OPEN if soft == resource.RLIM_INFINITY else min(max(2, soft // 4), _MOST_OPEN)


def _close_all(owner: int) -> None:
    for key in [key for key in _owned if key[0] == owner]:
        os.close(_owned.pop(key))
