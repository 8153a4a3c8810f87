"""Paths in messages: as the user gave them, though the program resolved them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

# The cache of object stores; in the environment, so that every process of a command has it.
CACHE_SETTING = "_VLCPCTL_STORE_CACHE"

Shown = Callable[[str | Path], str]  # the text of a path in messages


def as_argument(path: str | Path) -> str:
    """A path that no program takes for an option.

    >>> as_argument(Path("-x")), as_argument("runs/-x")
    ('./-x', 'runs/-x')
    """
    return f"./{path}" if str(path).startswith("-") else str(path)


def as_word(path: str | Path) -> str:
    """A path as a word of a command line that a user can paste into a shell.

    >>> as_word(Path("-x y"))
    "'./-x y'"
    """
    return shlex.quote(as_argument(path))


def as_given(path: str | Path, given: Sequence[Path]) -> str:
    """A resolved path as a user who gave the paths `given` would write it.

    A path below one of them starts with it. Another one is relative to the current directory if
    all of them are relative, and stays as it is otherwise.

    >>> as_given(Path("runs/01/x").absolute(), [Path("runs")])
    'runs/01/x'
    >>> as_given(Path("stream/00").absolute(), [Path("runs")])
    'stream/00'
    >>> as_given("/data/stream", [Path("/data/runs")])
    '/data/stream'
    """
    for one in given:
        real = Path(os.path.realpath(one))
        if Path(path).is_relative_to(real):
            return str(one / Path(path).relative_to(real))
    if any(one.is_absolute() for one in given) or not Path(path).is_absolute():
        return str(path)
    return os.path.relpath(path, os.path.realpath("."))


def shown(text: str) -> str:
    """A text in which the paths of stored files are their URLs again."""
    root = os.environ.get(CACHE_SETTING)
    if root is None or "/tree/" not in text:
        return text
    before, *parts = text.split(f"{root}/tree/")
    return before + "".join(part.replace("/", "://", 1) for part in parts)
