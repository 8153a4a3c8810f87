"""Paths in messages: as the user gave them, though the program resolved them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

Shown = Callable[[str | Path], str]  # the text of a path in messages


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
