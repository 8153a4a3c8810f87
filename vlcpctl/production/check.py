"""`vlcpctl check` of a state directory: all parts of it, and whether they belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.leaving_out import read_known, read_stop_list, stop_lists_in
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.files.rows import read_rows
from vlcpctl.inspection.check import check
from vlcpctl.production.settings import read_settings
from vlcpctl.production.state import RESTORE, TRAINED, Attempt, State


def check_state(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a state directory, with its repair; raises nothing."""
    try:
        state = State.read(path)
    except BadInput as error:
        yield str(error)
        return
    if (problem := state.fault_of_current()) is not None:
        yield f"{problem}; the next update makes it again"
    if state.counting:
        yield from _raised(read_settings, path)
    yield from _raised(_events, state)
    for one in state.attempts.values():
        yield from (_of_accepted if one.id in state.counting else _of_other)(state, one, deep=deep)
    for stop_list in stop_lists_in(path):
        yield from _raised(_deletion, state, stop_list)


def _raised(look: Callable[..., object], *about: object) -> Iterator[str]:
    """What a function says is wrong, by raising it."""
    try:
        look(*about)
    except (BadInput, UsageError, OSError) as error:
        yield str(error)


def _events(state: State) -> None:
    """Raise BadInput unless the events are all there, in order."""
    numbers = [one["number"] for one in state.events()]
    last = state.event["number"]
    if numbers != [*range(1, last + 1)] and numbers != [*range(1, last)]:  # the last after a kill
        raise BadInput(f"{state.root / 'events.ndjson'} has not the events 1 to {last}{RESTORE}")


def _of_accepted(state: State, one: Attempt, *, deep: bool) -> Iterator[str]:
    """Whether an accepted attempt is whole, and has the weights that state.json lists."""
    place, made = state.place(one), state.made(one, "")
    if one.week and one.parent != state.counting[one.week - 1]:
        yield f"week {one.week} does not continue the one before it{RESTORE}"
    if state.trimmed(one).exists():
        yield from _raised(read_known, state.trimmed(one))
    else:
        names = {state.trained(one).name, "checkpoint", *(["buffer"] if one.has_data else [])}
        yield from _of_parts(made, sorted(names), deep=deep, required=True)
        if (made / "checkpoint").is_dir():
            yield from _raised(state.verify, one)
    if one.has_data:
        yield from _of_parts(place, ("stream",), deep=deep, required=True)
    for file in sorted(x for each in (place, made) for x in each.glob("rows/*.ndjson")):
        yield from _raised(read_rows, [str(file)])
    for file in sorted(x for each in (place, made) for x in each.glob("ranks/*.parquet")):
        yield from _raised(SavedRanks.open, file)


def _of_other(state: State, one: Attempt, *, deep: bool) -> Iterator[str]:
    """What there is of an attempt that is not accepted; it need not be whole."""
    for found in sorted(state.place(one).glob("draw-*")):
        yield from _of_parts(found, ("checkpoint", "buffer", TRAINED), deep=deep)
    yield from _of_parts(state.place(one), ("stream",), deep=deep)


def _of_parts(
    directory: Path, names: tuple[str, ...] | list[str], *, deep: bool, required: bool = False
) -> Iterator[str]:
    for path in (directory / name for name in names):
        if path.is_dir():
            for problem in check(path, deep=deep):
                yield problem if ";" in problem else problem + RESTORE
        elif required:
            yield f"{path} is missing{RESTORE}"


def _deletion(state: State, path: Path) -> None:
    """Raise BadInput if a pair of a stop list is in a task."""
    stop = read_stop_list(path)
    places = [state.place(one) for one in state.attempts.values()]
    tasks = [x.parent for place in places for x in sorted(place.glob("stream/*/task.json"))]
    tasks += [x.parent for place in places for x in sorted(place.glob("draw-*/buffer/task.json"))]
    for task in map(open_task, tasks):
        found = sum(int(task.split(name).keys.among(stop.keys).sum()) for name in task.counts)
        if found:
            raise BadInput(
                f"{task.path} has {found} pairs of the deletion {stop.name[:12]}; run its "
                f"'vlcpctl forget' again for {state.root}"
            )
