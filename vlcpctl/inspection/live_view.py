"""What `watch` shows: a state as one line, or as lines that are redrawn on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.amounts import counted, duration
from vlcpctl.core.printable import printable
from vlcpctl.inspection.live_run import RunState
from vlcpctl.training.loop.metrics_log import FILE_NAME as JOURNAL
from vlcpctl.training.loop.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

BLOCKS = "".join(map(chr, range(0x2581, 0x2589)))  # bars of one to eight eighths of a line
SHADES = "_.-=+*#@"  # where the terminal shows ASCII only
_CHART = 24  # characters of a trend
_LEAST = 8  # values that a trend needs
_NARROW = 70  # cells of a terminal that has no room for the charts


def line(state: RunState) -> str:
    """The state as one line for a log."""
    return f"{printable(state.path)}: {'; '.join(_parts(state))}"


def _parts(state: RunState) -> Iterator[str]:
    if state.status == "finished":
        yield from finished_lines(state)
        return
    if state.status != "running":
        yield _status(state)
    if state.total:
        yield ", ".join(_progress(state))
    if state.terms:
        terms = (
            f"{name} {_number(value)}{_change_text(state, name)}"
            for name, value in state.terms.items()
        )
        yield printable(", ".join(terms))
    if state.validation:
        yield _validation(state)


def finished_lines(state: RunState) -> list[str]:
    """What a finished train-step reported at its end, from its checkpoint."""
    made = CheckpointManifest.read(state.path)
    seconds, pairs = made.train_seconds, made.pairs
    if not seconds or not pairs:
        return ["finished; it was not trained"]
    settings = made.identity.get("settings", {})
    rate = f" ({pairs / seconds:.0f} pairs/s)"
    outcome = Outcome.read(state.path / JOURNAL)
    found = list(outcome.lines(seconds, pairs, rate, settings.get("keep", "last")))
    return ["finished", *found]


def _status(state: RunState) -> str:
    """The status in words.

    >>> from pathlib import Path
    >>> _status(RunState(path=Path("run"), status="starting", process="process 7 on host",
    ...                  terms={}, recent={}))
    'starting, process 7 on host'
    """
    if state.status == "died":
        return f"{state.process or 'its process'} is gone; run the same train-step to continue"
    if state.status in {"running", "starting"}:
        return f"{state.status}, {state.process}" if state.process else state.status
    return f"{state.status}: {printable(state.error.message)}" if state.error else state.status


def ending(state: RunState) -> str:
    """Why a run is over that has not finished, for an error message."""
    return f"{printable(state.path)}: {_status(state)}"


def _progress(state: RunState) -> Iterator[str]:
    share = 100 * state.done / max(state.total, 1)
    phase = f"{printable(state.phase)} " if state.phase else ""
    if state.total != state.phase_steps:
        phase += f"{state.phase_done}/{state.phase_steps}, in all "
    yield f"{phase}{state.done}/{state.total} steps ({share:.0f}%)"
    yield from _rates(state)


def _rates(state: RunState) -> Iterator[str]:
    if state.rate is not None and state.pairs_per_second is not None:
        yield f"{state.rate:.1f} steps/s"
        yield f"{state.pairs_per_second:.0f} pairs/s"
    if state.left_s is not None:
        yield f"{duration(state.left_s)} left"


def _validation(state: RunState) -> str:
    assert state.validation is not None
    scores = dict(state.validation)
    step = int(scores.pop("step"))
    shown = ", ".join(f"{printable(name)} {_number(value)}" for name, value in scores.items())
    return f"validation after step {step + 1}: {shown}"


def _number(value: float) -> str:
    """Four digits.

    >>> _number(9.43149), _number(0.00030517)
    ('9.431', '0.0003052')
    """
    return f"{value:.4g}"


def change(values: Sequence[float]) -> float | None:
    """By how many percent the mean of the last quarter differs from that of the first one.

    None for too few values, and for a mean of 0.

    >>> change([4.0] * 10 + [3.0] * 10)
    -25.0
    """
    quarter = len(values) // 4
    if len(values) < _LEAST:
        return None
    before, after = sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter
    return 100 * (after - before) / abs(before) if before else None


def _change_text(state: RunState, name: str) -> str:
    """How a term has changed, in brackets; "" if that is unknown."""
    found = change(state.recent.get(name, ()))
    return "" if found is None else f" ({found:+.1f}%)"


def chart(values: Sequence[float], levels: str = SHADES, width: int = _CHART) -> str:
    """A line of at most `width` characters, one for each mean of as many values, by height.

    >>> chart([1.0, 2.0, 3.0, 8.0], "1234")
    '1124'
    """
    count = min(width, len(values))
    cuts = [len(values) * place // max(count, 1) for place in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(levels) - 1) / (high - low) if high > low else 0.0
    return "".join(levels[round((mean - low) * scale)] for mean in means)


def view(state: RunState, width: int, *, blocks: bool) -> RenderableType:
    """The state for a terminal of `width` cells; `blocks` if it can show more than ASCII."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text.assemble((printable(state.path), "bold"), _about(state))]
    if state.status == "finished":
        return Group(*parts, *map(Text, finished_lines(state)))
    parts.append(Text(_status(state), "red" if state.is_over else "dim"))
    if state.total:
        bar = ProgressBar(total=state.total, completed=state.done, width=max(8, width // 3))
        steps, *rates = _progress(state)
        row = Table.grid(padding=(0, 2))  # a bar alone does not end its line
        row.add_row(bar, Text(steps))
        parts += [row, *([Text(", ".join(rates))] if rates else [])]
    if state.terms:
        parts += [Text(), _table(state, width, BLOCKS if blocks else SHADES)]
    if state.validation:
        parts += [Text(), Text(_validation(state))]
    return Group(*parts)


def _about(state: RunState) -> str:
    """The method and the tasks of a run."""
    if state.progress is None:
        return ""
    tasks, epoch = state.progress.tasks, state.progress.epoch_steps
    names = tasks[0] if len(tasks) == 1 else counted(len(tasks), "task")
    return f"  {printable(state.progress.method)} on {printable(names)}, {epoch} steps per epoch"


def _table(state: RunState, width: int, levels: str) -> Table:
    """The last value of each term, how it has changed, and its course."""
    from rich.table import Table
    from rich.text import Text

    shown = max(map(len, state.recent.values()), default=0)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("term")
    table.add_column("now", justify="right")
    table.add_column(f"in {shown} steps", justify="right")
    if width >= _NARROW:
        table.add_column("trend")
    for name, value in state.terms.items():
        values = state.recent.get(name, ())
        found = change(values)
        cells = [
            Text(printable(name), "bold" if name == "loss" else ""),
            Text(_number(value)),
            Text("" if found is None else f"{found:+.1f}%"),
            Text(chart(values, levels)),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table
