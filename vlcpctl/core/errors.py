"""Every error a user can meet, with the exit code that it ends the process with.

VlcpError 1
  UsageError 2          a command line that contradicts itself or names something unknown
  BadInput 3            data that is wrong, with its file and row
  OutputExists 4        the output exists and was made differently, or is being written
  Incompatible 5        a checkpoint, state or model that does not fit or has changed
  TooManySkipped 6      more samples skipped than --max-skip allows
  GateFailed 7          a --fail-if condition is true
  Diverged 8            a loss became NaN or infinite
  Interrupted 75        stopped by a signal, resumable state saved
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

MOST_NAMES = 20  # that a message lists


class VlcpError(Exception):
    """A failure that the user can act on: one line with what was wrong, where, and what to do."""

    exit_code = 1


class UsageError(VlcpError):
    """The command line contradicts itself or names something unknown."""

    exit_code = 2


class BadInput(VlcpError):
    """The input data is wrong; the message names the file and the row."""

    exit_code = 3


class OutputExists(VlcpError):
    """The output was made by a different command, or another process is writing it."""

    exit_code = 4


class Incompatible(VlcpError):
    """A checkpoint or saved state does not fit the command, or has changed since it was written."""

    exit_code = 5


class TooManySkipped(VlcpError):
    """The command skipped more samples than --max-skip allows."""

    exit_code = 6


class GateFailed(VlcpError):
    """A condition given with --fail-if holds."""

    exit_code = 7


class Diverged(VlcpError):
    """A loss became NaN or infinite; the message names step, term and last good state."""

    exit_code = 8


class Interrupted(VlcpError):
    """A signal stopped the command after it saved its state; the same command resumes."""

    exit_code = 75


def debugging() -> bool:
    """Whether tracebacks are shown: VLCPCTL_DEBUG is set, and not to 0, false, no or off."""
    return os.environ.get("VLCPCTL_DEBUG", "").strip().lower() not in {
        "",
        "0",
        "false",
        "no",
        "off",
    }


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the nearest one that does.

    >>> unknown_name("method", "ewcc", ["ewc", "si"])
    "unknown method 'ewcc'; did you mean 'ewc'? (known: ewc, si)"
    """
    names = sorted(known)
    near = nearest(name, names)
    guess = f"; did you mean {near!r}?" if near is not None else ""
    shown = names
    if len(names) > MOST_NAMES:
        like = difflib.get_close_matches(name, names, n=MOST_NAMES, cutoff=0.3)
        shown = [*(like or names[:MOST_NAMES]), f"... {len(names)} in all"]
    return f"unknown {kind} {name!r}{guess} (known: {', '.join(shown)})"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most like `name` to suggest in its place; never `name` itself.

    `cutoff` is the least similarity, from 0 to 1. None if no other name is as similar.

    >>> nearest("ewcc", ["ewc", "si"])
    'ewc'
    >>> nearest("ewc", ["ewc", "si"])
    """
    others = [one for one in known if one != name]
    return next(iter(difflib.get_close_matches(name, others, n=1, cutoff=cutoff)), None)


def some_names(names: Sequence[str]) -> str:
    """The first names, and the total number if there are more.

    >>> some_names(["a", "b"])
    'a, b'
    """
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, ... {len(names)} in all"


def unreadable(path: Path | str, error: BaseException) -> str:
    """The message for a file that cannot be read, with the error's reason on one line.

    >>> unreadable("labels.txt", FileNotFoundError(2, "No such file or directory"))
    'cannot read labels.txt: No such file or directory'
    """
    return f"cannot read {path}: {getattr(error, 'strerror', None) or first_line(error)}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the exception's name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
