"""Output for people, log lines and progress, goes to stderr; only results go to stdout.

Messages and results may contain names that others chose (of files, members of tars, runs, tasks).
They are made safe for a terminal here, so that callers need not do so.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from vlcpctl.core.words import as_argument, duration, printable, printable_json, shown

_ERRORS = "backslashreplace"  # of a terminal that takes no UTF-8


class _State:
    quiet = False
    warns = True
    hidden: str | None = None  # a result that is not printed
    claimed: TextIO | None = None  # the real stdout, between `claim_stdout` and `release_stdout`


_state = _State()


def set_quiet(quiet: bool) -> None:
    """Turn log lines and progress off or on; warnings are always shown."""
    _state.quiet = quiet


@contextmanager
def silenced() -> Iterator[None]:
    """Print no log line, progress and warning within the block."""
    before = _state.quiet, _state.warns
    _state.quiet, _state.warns = True, False
    try:
        yield
    finally:
        _state.quiet, _state.warns = before


def hide_result(text: str | None) -> None:
    """Print no result that is this text: the path of an output that is about to be moved."""
    _state.hidden = text


def claim_stdout() -> None:
    """Reserve stdout for `results()`: whatever else prints to stdout goes to stderr from now on.

    This works on file descriptors, so it also covers libraries that write to descriptor 1 from C.
    """
    sys.stdout.flush()
    # A library may print more than ASCII to it. In a child of a process that has claimed it, it may
    # be a pipe now that was a file, of which Python would ask the position.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != _ERRORS:
        sys.stdout.reconfigure(errors=_ERRORS)
    _state.claimed = os.fdopen(os.dup(1), "w", encoding="utf-8", errors=_ERRORS)
    os.dup2(2, 1)


def release_stdout() -> None:
    """Undo `claim_stdout`; does nothing without one."""
    if _state.claimed is None:
        return
    sys.stdout.flush()
    _flush_c_streams()
    with _state.claimed as stream:
        os.dup2(stream.fileno(), 1)
    _state.claimed = None


def _flush_c_streams() -> None:
    # What libraries print in C must follow their other output to stderr: later it would be among
    # the results, or be lost when the process leaves by os._exit. They import ctypes themselves.
    library = sys.modules.get("ctypes")
    if library is not None:
        library.CDLL(None).fflush(None)


def drop_stdout() -> None:
    """Discard all further results: the reader downstream has closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, results().fileno())
    os.close(nowhere)


def drop_stderr() -> None:
    """Discard everything that is printed to stderr from now on: nobody can read it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def log(text: str) -> None:
    """Print text to stderr; errors are ignored, such as a closed pipe or a full disk.

    Results are written elsewhere, and the loss of a log line does not change them.
    """
    try:
        print(shown(text), file=sys.stderr, flush=True)
    except OSError:
        drop_stderr()


def results() -> TextIO:
    """The stream for rows and other results: the real stdout."""
    return _state.claimed or sys.stdout


def say(message: str) -> None:
    """Print one log line to stderr, unless --quiet."""
    if not _state.quiet:
        log(printable(message))


def warn(message: str) -> None:
    """Print a warning of one line to stderr, also with --quiet."""
    if _state.warns:
        log(f"warning: {printable(message)}")


def emit(text: object) -> None:
    """Print one line of results to stdout; unsafe characters are escaped as JSON escapes them.

    A path is printed so that it can be an argument of another command.
    """
    if str(text) == _state.hidden:
        return
    line = as_argument(text) if isinstance(text, Path) else text
    print(printable_json(line), file=results(), flush=True)


def emit_wrapped(line: str, indent: str) -> None:
    """Print one line of results; on a terminal, what does not fit follows at an indentation."""
    if not line or not results().isatty():
        emit(line)
        return
    width = shutil.get_terminal_size().columns
    wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
    for part in wrap(printable(line), width, subsequent_indent=indent):
        emit(part)


class Progress:
    """A progress display that counts up to a total."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more as done; `note` is shown beside the count (a loss, a rate)."""
        raise NotImplementedError

    def resume(self, count: int) -> None:
        """Count `count` as done by an earlier process: rates and the time left ignore them.

        To be called before the first `advance`; the time starts here.
        """
        raise NotImplementedError


class _SilentProgress(Progress):
    def advance(self, count: int = 1, note: str = "") -> None:
        pass

    def resume(self, count: int) -> None:
        pass


class _LineProgress(Progress):
    """Progress as a log line every `every_s` seconds, where there is no terminal."""

    def __init__(self, label: str, total: int, unit: str, every_s: float) -> None:
        self.label, self.total, self.unit, self.every_s = label, total, unit, every_s
        self.done = self.earlier = 0
        self.started = self.shown = time.monotonic()

    def resume(self, count: int) -> None:
        self.done = self.earlier = count
        self.started = self.shown = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        now = time.monotonic()
        if now - self.shown < self.every_s and self.done != self.total:
            return
        if now - self.started < self.every_s / 2:
            return  # too short to be worth a line
        self.shown = now
        rate = (self.done - self.earlier) / max(now - self.started, 1e-9)
        done = f"{self.done}/{self.total}" if self.total else str(self.done)
        more = self.total - self.done
        left = f", {duration(more / rate)} left" if more > 0 and rate > 0 else ""
        say(f"{self.label}: {done} {self.unit}{left}, {rate:.1f}/s {note}".rstrip())


@contextmanager
def progress(
    label: str, total: int, unit: str = "items", every_s: float = 10.0
) -> Iterator[Progress]:
    """A progress bar on a terminal, a line every `every_s` seconds elsewhere, nothing if quiet.

    A total of 0 means that the total is unknown.
    """
    if _state.quiet:
        yield _SilentProgress()
    elif _shows_bar():
        with _bar(label, total, unit) as bar:
            yield bar
    else:
        yield _LineProgress(label, total, unit, every_s)


def _shows_bar() -> bool:
    # If stdout is piped to a program that prints to the same terminal, its output breaks the bar.
    return sys.stderr.isatty() and results().isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def _bar(label: str, total: int, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),  # a label in brackets is not markup
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(label), total=total or None, note="")

        class _Bar(Progress):
            def advance(self, count: int = 1, note: str = "") -> None:
                bar.update(task, advance=count, note=printable(note))

            def resume(self, count: int) -> None:
                bar.reset(task, completed=count)

        yield _Bar()
