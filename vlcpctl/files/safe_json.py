"""JSON of unknown origin: its value, or one error that says why there is none."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, lfs_pointer, unreadable
from vlcpctl.files.input_files import open_regular

MOST_BYTES = 1 << 28
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # perhaps half of a pair


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


def read_json(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """The value in a JSON file. Raises BadInput, naming the file, if it cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"cannot read {path}: it is not a regular file")
        if found.st_size > most_bytes:
            raise BadInput(f"cannot read {path}: it has {found.st_size} bytes, over {most_bytes}")
        with open_regular(path) as file:
            return parse_json(file.read())
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    except ValueError as error:
        raise BadInput(lfs_pointer(path) or f"{path} is not readable JSON: {error}") from error


def read_json_object(path: Path, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The object in a JSON file. Raises BadInput, naming the file, if there is none."""
    value = read_json(path, most_bytes=most_bytes)
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object, it is a {type(value).__name__}")
    return value
