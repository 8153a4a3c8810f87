"""`vlcpctl watch`: follow a train-step while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import Json
from vlcpctl.core import console
from vlcpctl.core.errors import BadInput, VlcpError
from vlcpctl.core.options import OnePath, argument, option, switch

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from vlcpctl.inspection.live_run import RunState

NEXT_S = 10.0  # to wait for the next run of a directory
_LINES_S, _VIEW_S = 10.0, 1.0
Show = Callable[["RunState"], None]


class RunEnded(VlcpError):
    """The run that was watched failed; its exit code becomes that of `watch`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class Watch(Json):
    """Follow a train-step while it runs: progress, loss terms, rate and time left.

    Reads what train-step writes beside its --out, and needs no GPU; it may run on another machine
    that sees the same files. A run that has not started is waited for. In a directory, the run that
    is being trained is followed, and then the next one, until none has started for 10 seconds.

    On a terminal the view is redrawn; elsewhere, and with --plain, a line is printed whenever
    something has changed. The trend of a loss term is that of the last 400 steps at most, and its
    change compares their last quarter with the first. --json prints an object for each state.

    Exits with 0 when the run has finished, else as train-step did: with 8 if it diverged, 75 if it
    was interrupted, 1 if its process is gone. With --once, always with 0.

    Examples:
      vlcpctl watch run/01
      vlcpctl watch runs --plain --every 60 >> progress.log
      vlcpctl watch run/01 --once --json | jq .left_s
    """

    path: OnePath = argument(
        "RUN",
        "Checkpoint that train-step writes (its --out), or a directory of several",
        kw_only=False,
    )
    once: bool = switch("Print the state now, and exit")
    plain: bool = switch("Print lines, also on a terminal, instead of redrawing a view")
    every: float | None = option(
        "Seconds between two updates",
        "SECONDS",
        otherwise="1 on a terminal, 10 for lines",
        within="[0.1, 86400.0]",
    )

    def execute(self) -> None:
        _check(self.path)
        out = _next(self.path) or self.path
        if self.once:
            _print_once(out, as_json=self.json)
            return
        is_view = not (self.plain or self.json) and console.results().isatty()
        pause = self.every or (_VIEW_S if is_view else _LINES_S)
        with _view() if is_view else _lines(as_json=self.json) as show:
            while True:
                state = _followed(out, show, pause, within=self.path)
                following = _awaited(self.path, state)
                if following is None:
                    break
                out = following
        _judge(state)


def _check(path: Path) -> None:
    """Refuse what cannot become or contain a checkpoint."""
    from vlcpctl.files.manifest import kind_of, with_article

    kind = kind_of(path)
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} is a file; give the --out of a train-step, or a directory of some")
    if kind not in {None, "checkpoint"}:
        raise BadInput(f"{path} is {with_article(str(kind))}; give the --out of a train-step")


def _next(path: Path) -> Path | None:
    """The run to follow in a directory of runs: one that is being trained, else the last one.

    None if `path` is a run itself, or has no unfinished run.
    """
    from vlcpctl.inspection.live_run import last_below, running_below

    if not _has_runs(path):
        return None
    return next(iter(running_below(path)), None) or last_below(path)


def _has_runs(path: Path) -> bool:
    """Whether `path` is a directory that is not itself a run."""
    from vlcpctl.files.manifest import kind_of
    from vlcpctl.files.staging import Staging

    return path.is_dir() and kind_of(path) is None and not Staging(path).is_ours()


def _followed(out: Path, show: Show, pause: float, *, within: Path) -> RunState:
    """The last state of a run, after showing every state until then."""
    from vlcpctl.inspection.live_run import LiveRun

    live = LiveRun(out)
    while True:
        state = live.look()
        show(state)
        if state.is_over:
            return state
        time.sleep(pause)
        found = _next(within) if state.status == "not started" else None
        if found is not None:
            live = LiveRun(found)


def _awaited(path: Path, state: RunState) -> Path | None:
    """The run in a directory that is trained after this one has finished; None if none starts."""
    from vlcpctl.inspection.live_run import running_below

    if state.path == path or state.status != "finished":
        return None
    deadline = time.monotonic() + NEXT_S
    while time.monotonic() < deadline:
        found = running_below(path)
        if found:
            return found[0]
        time.sleep(min(0.5, NEXT_S))
    return None


def _print_once(out: Path, *, as_json: bool) -> None:
    from vlcpctl.inspection.live_run import LiveRun

    state = LiveRun(out).look()
    if as_json:
        _emit_json(state)
    elif console.results().isatty():
        _console().print(_rendered(state))
    else:
        _emit_line(state)


@contextmanager
def _lines(*, as_json: bool) -> Iterator[Show]:
    """A line for each state that differs from the one before."""
    shown: list[object] = []

    def show(state: RunState) -> None:
        seen = (state.path, state.status, state.done, state.validation)
        if shown != [seen]:
            shown[:] = [seen]
            (_emit_json if as_json else _emit_line)(state)

    yield show


@contextmanager
def _view() -> Iterator[Show]:
    """A view on the terminal that each state replaces; the last state of each run stays."""
    from rich.live import Live

    from vlcpctl.core.ending import at_signal

    shown: list[Path] = []
    live = Live(console=_console(), auto_refresh=False)

    def show(state: RunState) -> None:
        if shown and shown != [state.path]:  # the next run is drawn below the last one
            live.stop()
            live.start()
        shown[:] = [state.path]
        live.update(_rendered(state), refresh=True)

    with at_signal(live.stop), live:  # a signal must not leave the cursor hidden
        yield show


def _console() -> Console:
    from rich.console import Console

    return Console(file=console.results(), highlight=False)


def _rendered(state: RunState) -> RenderableType:
    from vlcpctl.inspection.live_view import view

    terminal = _console()
    blocks = terminal.encoding.lower().startswith("utf")
    return view(state, terminal.width, blocks=blocks)


def _emit_line(state: RunState) -> None:
    from vlcpctl.inspection.live_view import line

    console.emit(line(state))


def _emit_json(state: RunState) -> None:
    console.emit(json.dumps(state.as_json(), ensure_ascii=False))


def _judge(state: RunState) -> None:
    """Raise RunEnded for a run that has failed."""
    from vlcpctl.inspection.live_view import ending

    if state.status != "finished":
        raise RunEnded(ending(state), state.error.code if state.error else 1)
