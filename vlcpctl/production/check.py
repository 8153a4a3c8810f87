"""`vlcpctl check` of a state directory: all parts of it, and whether they belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.splitting.leaving_out import read_known, read_stop_list, stop_lists_in
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.rows import read_rows
from vlcpctl.inspection.check import check
from vlcpctl.production.settings import read_settings
from vlcpctl.production.state import TRAINED, Attempt, State

_RESTORE = "; restore it from a backup"


def check_state(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a state directory, with its repair; raises nothing."""
    try:
        state = State.read(path)
    except BadInput as error:
        yield str(error)
        return
    yield from _told(partial(_of_current, state))
    if state.counting:
        yield from _told(partial(_of_settings, state))
    yield from _told(partial(_of_events, state))
    for one in state.attempts.values():
        yield from (_of_accepted if one.id in state.counting else _of_other)(state, one, deep=deep)
    for stop_list in stop_lists_in(path):
        yield from _told(partial(_of_deletion, state, stop_list))


def _told(problems: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The problems; what cannot be read is one more."""
    try:
        yield from problems()
    except (BadInput, UsageError, OSError) as error:
        yield str(error)


def _of_settings(state: State) -> Iterator[str]:
    read_settings(state.root)
    yield from ()


def _of_current(state: State) -> Iterator[str]:
    if (problem := state.fault_of_current()) is not None:
        yield f"{problem}; the next update makes it again"


def _of_events(state: State) -> Iterator[str]:
    """Whether the events are all there, in order."""
    numbers = [one["number"] for one in state.events()]
    last = state.event["number"]
    if numbers != [*range(1, last + 1)] and numbers != [*range(1, last)]:  # the last after a kill
        yield f"{state.root / 'events.ndjson'} has not the events 1 to {last}{_RESTORE}"


def _of_accepted(state: State, one: Attempt, *, deep: bool) -> Iterator[str]:
    """Whether an accepted attempt is whole, and has the weights that state.json lists."""
    place, made = state.place(one), state.made(one, "")
    if one.week and one.parent != state.counting[one.week - 1]:
        yield f"week {one.week} does not continue the one before it{_RESTORE}"
    is_trimmed = state.trimmed(one).exists()
    if is_trimmed:
        yield from _told(partial(_of_known, state.trimmed(one)))
    else:
        names = {state.trained(one).name, "checkpoint", *(["buffer"] if one.has_data else [])}
        yield from _of_parts(made, sorted(names), deep=deep, required=True)
        with_weights = (made / "checkpoint").is_dir()
        yield from _told(partial(_of_weights, state, one)) if with_weights else ()
    if one.has_data:
        yield from _of_parts(place, ("stream",), deep=deep, required=True)
    yield from _told(partial(_of_rows, place, made))


def _of_other(state: State, one: Attempt, *, deep: bool) -> Iterator[str]:
    """What there is of an attempt that is not accepted; it need not be whole."""
    for found in sorted(state.place(one).glob("draw-*")):
        yield from _of_parts(found, ("checkpoint", "buffer", TRAINED), deep=deep)
    yield from _of_parts(state.place(one), ("stream",), deep=deep)


def _of_known(path: Path) -> Iterator[str]:
    read_known(path)
    yield from ()


def _of_weights(state: State, one: Attempt) -> Iterator[str]:
    state.verify(one)
    yield from ()


def _of_rows(*places: Path) -> Iterator[str]:
    """Whether rows and ranks can be read."""
    for place in places:
        for file in sorted((place / "rows").glob("*.ndjson")):
            read_rows([str(file)])
        for file in sorted((place / "ranks").glob("*.parquet")):
            SavedRanks.open(file)
    yield from ()


def _of_parts(
    directory: Path, names: tuple[str, ...] | list[str], *, deep: bool, required: bool = False
) -> Iterator[str]:
    for path in (directory / name for name in names):
        if path.is_dir():
            for problem in check(path, deep=deep):
                yield problem if ";" in problem else problem + _RESTORE
        elif required:
            yield f"{path} is missing{_RESTORE}"


def _of_deletion(state: State, path: Path) -> Iterator[str]:
    """Whether no pair of a stop list is in the state, but for attempts that take it in again."""
    stop = read_stop_list(path)
    keys = Keys.of(sorted(stop.keys))
    for one in state.attempts.values():
        if path.stem in {
            x.removesuffix(".json") for x in one.settings["update"].get("readmit", [])
        }:
            return
        for task in _tasks(state.place(one)):
            opened = open_task(task)
            found = sum(int(opened.split(name).keys.among(keys).sum()) for name in opened.counts)
            if found:
                yield (
                    f"{task} has {found} pairs of the deletion {stop.request[:12]}; run its "
                    f"'vlcpctl forget' again for {state.root}"
                )


def _tasks(place: Path) -> Iterator[Path]:
    stream = place / "stream"
    if (stream / MANIFESTS["stream"]).is_file():
        yield from (stream / entry.path for entry in read_stream(stream).tasks)
    for buffer in sorted(place.glob("draw-*/buffer")):
        if (buffer / MANIFESTS["task"]).is_file():
            yield buffer
