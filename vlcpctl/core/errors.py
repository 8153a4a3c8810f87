"""Every error a user can meet, with the exit code that it ends the process with."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

MOST_NAMES = 20  # that a message lists
LFS_START = b"version https://git-lfs"  # of the text that stands in the place of a file
_MOST_ENTRIES = 1000  # of a directory, in which a name is looked for
# The exit codes that no error of this module has: 128 and the number of a signal, and the rest.
_OTHER_CODES = {
    0: "Success.",
    1: "Another failure, such as a full disk.",
    129: "Ended by SIGHUP, as when a terminal is closed; nothing was saved.",
    130: "Ended by SIGINT, as by Ctrl+C; nothing was saved.",
    141: "The program that read standard output closed it (broken pipe).",
    143: "Ended by SIGTERM; nothing was saved.",
}


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


class HookFailed(VlcpError):
    """A command of --on-accept or --on-reject failed; the week and its verdict stay."""

    exit_code = 9


class Interrupted(VlcpError):
    """A signal stopped the command after it saved its state; the same command resumes."""

    exit_code = 75


def kinds() -> list[type[VlcpError]]:
    """The errors of this module that have an exit code of their own."""
    return [one for one in VlcpError.__subclasses__() if one.__module__ == __name__]


def exit_codes() -> dict[int, str]:
    """Every exit code of the program with its meaning, a sentence; in ascending order."""
    # With python -OO there are no docstrings.
    codes = {one.exit_code: one.__doc__ or "" for one in kinds()}
    return dict(sorted({**_OTHER_CODES, **codes}.items()))


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
    >>> unknown_name("parameter of seqf:", "lr", [])
    "unknown parameter of seqf: 'lr' (known: none)"
    """
    names = sorted(known)
    near = nearest(name, names)
    guess = f"; did you mean {near!r}?" if near is not None else ""
    shown = names
    if len(names) > MOST_NAMES:
        like = difflib.get_close_matches(name, names, n=MOST_NAMES, cutoff=0.3)
        shown = [*(like or names[:MOST_NAMES]), f"... {len(names)} in all"]
    return f"unknown {kind} {name!r}{guess} (known: {', '.join(shown) or 'none'})"


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most like `name` to suggest in its place; never `name` itself.

    `cutoff` is the least similarity, from 0 to 1. None if no other name is as similar.

    >>> nearest("ewcc", ["ewc", "si"])
    'ewc'
    >>> nearest("ewc", ["ewc", "si"])
    """
    others = [one for one in known if one != name]
    return next(iter(difflib.get_close_matches(name, others, n=1, cutoff=cutoff)), None)


def some_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first names, and the total number if there are more.

    >>> some_names(["a", "b"])
    'a, b'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... {len(names)} in all"


def missing(path: Path | str) -> str:
    """The message for a path at which nothing is, with the name beside it that is most like it."""
    return f"{path} does not exist{_beside(path)}"


def unreadable(path: Path | str, error: BaseException) -> str:
    """The message for a file that cannot be read, with the error's reason on one line.

    >>> unreadable("labels.txt", FileNotFoundError(2, "No such file or directory"))
    'cannot read labels.txt: No such file or directory'
    """
    if (pointer := lfs_pointer(path)) is not None:
        return pointer
    reason = getattr(error, "strerror", None) or first_line(error)
    beside = _beside(path) if isinstance(error, FileNotFoundError) else ""
    return f"cannot read {path}: {reason}{beside}"


def lfs_pointer(path: Path | str) -> str | None:
    """The message for a file that Git LFS has not fetched; None for any other path."""
    with suppress(OSError, ValueError):
        if Path(path).is_file():
            with Path(path).open("rb") as file:
                if file.read(len(LFS_START)) == LFS_START:
                    return f"{path} is a Git LFS pointer, not the file: run 'git lfs pull'"
    return None


def _beside(path: Path | str) -> str:
    wanted = Path(path)
    try:
        with os.scandir(wanted.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except (OSError, ValueError):
        return ""
    near = nearest(wanted.name, [name for name in names if not name.startswith(".")])
    return f"; did you mean {wanted.parent / near}?" if near is not None else ""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the exception's name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
