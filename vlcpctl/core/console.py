"""What a person sees: log lines and progress on stderr; results alone go to stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class _State:
    quiet = False
    claimed: TextIO | None = None  # the way to stdout while `claim_stdout` holds


_state = _State()


def set_quiet(quiet: bool) -> None:
    """Silence log lines and progress; warnings stay."""
    _state.quiet = quiet


def claim_stdout() -> None:
    """From here on libraries that print reach stderr; only `results()` leads to stdout."""
    sys.stdout.flush()
    _state.claimed = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)


def release_stdout() -> None:
    """Undo `claim_stdout`, if it holds."""
    if _state.claimed is None:
        return
    sys.stdout.flush()
    with _state.claimed as stream:
        os.dup2(stream.fileno(), 1)
    _state.claimed = None


def drop_stdout() -> None:
    """Let what is still to be written vanish: the reader downstream has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, results().fileno())
    os.close(nowhere)


def results() -> TextIO:
    """The stream that rows and other results are written to."""
    return _state.claimed or sys.stdout


def say(message: str) -> None:
    """One line of log."""
    if not _state.quiet:
        print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """One line that --quiet does not silence."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def emit(text: object) -> None:
    """One line of result on stdout."""
    print(text, file=results(), flush=True)


class Progress:
    """Counts up to a total; subclasses show it."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """`count` more are done; `note` is shown beside (a loss, a rate)."""
        raise NotImplementedError


class _Silent(Progress):
    def advance(self, count: int = 1, note: str = "") -> None:
        pass


class _Lines(Progress):
    """One log line every so often, for logs that are read later."""

    def __init__(self, label: str, total: int, unit: str, every_s: float) -> None:
        self.label, self.total, self.unit, self.every_s = label, total, unit, every_s
        self.done = 0
        self.started = self.shown = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        now = time.monotonic()
        if now - self.shown < self.every_s and self.done != self.total:
            return
        if now - self.started < self.every_s / 2:
            return  # done before anyone had time to wonder
        self.shown = now
        rate = self.done / max(now - self.started, 1e-9)
        done = f"{self.done}/{self.total}" if self.total else str(self.done)
        say(f"{self.label}: {done} {self.unit}, {rate:.1f}/s {note}".rstrip())


@contextmanager
def progress(
    label: str, total: int, unit: str = "items", every_s: float = 10.0
) -> Iterator[Progress]:
    """A bar on a terminal, a line every `every_s` seconds elsewhere, nothing when quiet.

    A total of 0 is one that is not known.
    """
    if _state.quiet:
        yield _Silent()
    elif _animated():
        with _bar(label, total, unit) as bar:
            yield bar
    else:
        yield _Lines(label, total, unit, every_s)


def _animated() -> bool:
    # When stdout is piped to another program, that program's output breaks the bar on stderr.
    return sys.stderr.isatty() and results().isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def _bar(label: str, total: int, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total or None, note="")

        class _Bar(Progress):
            def advance(self, count: int = 1, note: str = "") -> None:
                bar.update(task, advance=count, note=note)

        yield _Bar()
