"""Errors of libraries that read and write files, as one line of ours that names the file."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlcpctl.core.errors import BadInput, VlcpError, unreadable
from vlcpctl.files.input_files import naming_input

# The base classes of libraries' own errors; only libraries that are imported can raise theirs.
_BASES = {"pyarrow": "ArrowException", "safetensors": "SafetensorError"}


def damage() -> tuple[type[Exception], ...]:
    """What pyarrow, safetensors, Pillow, json and numpy raise for bytes that they cannot read.

    pyarrow's names that are not UTF-8 are a ValueError, and some damage an OSError without errno.
    """
    own = [getattr(sys.modules[name], base) for name, base in _BASES.items() if name in sys.modules]
    return (OSError, ValueError, OverflowError, *own)


@contextmanager
def reading(path: Path, what: str = "", *, error: type[VlcpError] = BadInput) -> Iterator[None]:
    """Within the block, damage of a file is `error`: `what`, or "cannot read PATH", and the reason.

    >>> with reading(Path("pairs.json")):
    ...     raise ValueError("cut short")
    Traceback (most recent call last):
    vlcpctl.core.errors.BadInput: cannot read pairs.json: cut short
    """
    try:
        yield
    except damage() as found:
        raise error(_told(path, what, found)) from found


@contextmanager
def reading_source(path: Path, what: str = "") -> Iterator[None]:
    """As `reading`, but what the operating system reports is no damage: raises it as OSError.

    It is named after the file, such as an input or output error of a failing disk.
    """
    try:
        yield
    except damage() as found:
        if isinstance(found, OSError) and found.errno:
            with naming_input(path):
                raise
        raise BadInput(_told(path, what, found)) from found


def _told(path: Path, what: str, found: Exception) -> str:
    message = unreadable(path, found)
    return message if not what else f"{what}: {message.removeprefix(f'cannot read {path}: ')}"


@contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Within the block, safetensors writes a file, which gets the modes of the umask.

    Raises VlcpError if it cannot be written, as on a full disk.
    """
    from safetensors import SafetensorError

    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except SafetensorError as error:
        raise VlcpError(f"cannot write {path}: {error}") from error
    path.chmod(mode)  # safetensors renames a file that only its owner may read
