"""`vlcpctl check` of a state directory: all parts of it, and whether they belong together."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.leaving_out import (
    StopList,
    read_known,
    read_stop_list,
    stop_lists_in,
)
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.rows import read_rows
from vlcpctl.inspection.check import check
from vlcpctl.production.attempt import Attempt, Judgement
from vlcpctl.production.layout import TRAINED, Layout
from vlcpctl.production.ledger import (
    ACCEPTED,
    REDONE,
    ROLLED_BACK,
    UNRESOLVED,
    Action,
    read_ledger,
)
from vlcpctl.production.state import State, Week, read_state

_RESTORE = "; restore it from a backup"
_PARTS = ("stream", "checkpoint", "buffer")


def check_state(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of a state directory, with its repair; raises nothing."""
    place = Layout(path)
    try:
        state = read_state(place)
    except BadInput as error:
        yield str(error)
        return
    yield from _of_current(place, state)
    yield from _of_start(place, state, deep=deep)
    parent = state.start.checkpoint
    for week in state.weeks:
        yield from _of_week(place, week, parent, deep=deep)
        parent = week.checkpoint
    for directory in _others(place):
        yield from _of_parts(directory, [*_PARTS, TRAINED], deep=deep)
    yield from _told(lambda: _of_ledger(place, state))
    for stop_list in stop_lists_in(path):
        yield from _told(partial(_of_deletion, place, stop_list))


def _told(problems: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The problems; what cannot be read is one more."""
    try:
        yield from problems()
    except (BadInput, OSError) as error:
        yield str(error)


def _of_current(place: Layout, state: State) -> Iterator[str]:
    if not state.start.ready:
        return
    fault = place.fault_of_current(state.weeks_of_current(place))
    repair = f"; '{shlex.join(['vlcpctl', 'check', str(place.root), '--repair'])}' sets it"
    if fault is not None:
        yield place.repair_of_current(fault, state.last)
    elif not os.path.lexists(place.current):
        yield f"{place.current} is missing{repair}"


def _of_start(place: Layout, state: State, *, deep: bool) -> Iterator[str]:
    if not state.start.ready:
        return
    names = ["checkpoint", *(["stream", "buffer"] if state.start.buffer_from else [])]
    yield from _of_parts(place.start, names, deep=deep, required=True)
    yield from _told(lambda: _of_checkpoint(place.start / "checkpoint", state.start.checkpoint))
    yield from _told(lambda: _of_rows(place.start))


def _of_week(place: Layout, week: Week, parent: str, *, deep: bool) -> Iterator[str]:
    directory = place.week(week.number)
    if not directory.is_dir():
        yield f"{directory} is missing{_RESTORE}"
        return
    yield from _told(lambda: _of_records(directory, week, parent))
    if place.is_trimmed(week.number):
        yield from _told(lambda: _of_known(place.trimmed(week.number)))
        yield from _of_parts(directory, ["stream"], deep=deep, required=True)
    else:
        yield from _of_parts(directory, _PARTS, deep=deep, required=True)
        yield from _told(lambda: _of_checkpoint(directory / "checkpoint", week.checkpoint))
        with suppress(BadInput):  # told of above
            yield from _of_trained(directory, deep=deep)
    yield from _told(lambda: _of_rows(directory))


def _of_records(directory: Path, week: Week, parent: str) -> Iterator[str]:
    """Whether week.json and verdict.json are those of an accepted week that state.json has."""
    attempt, judged = Attempt.read(directory), Judgement.read(directory)
    if judged is None or not judged.accepted:
        yield f"{directory} has no verdict that accepts it{_RESTORE}"
    found = {"number": attempt.number, "data": attempt.data, "checkpoint before it": attempt.parent}
    wanted = {"number": week.number, "data": week.data, "checkpoint before it": parent}
    differ = [name for name, value in wanted.items() if found[name] != value]
    if differ:
        yield (
            f"{directory / 'week.json'} is of another week than state.json lists: it has another "
            f"{some_names(differ)}{_RESTORE}"
        )


def _of_known(path: Path) -> Iterator[str]:
    read_known(path)
    yield from ()


def _of_checkpoint(path: Path, content: str) -> Iterator[str]:
    if (path / MANIFESTS["checkpoint"]).is_file():
        found = CheckpointManifest.read(path).content
        if found != content:
            yield (
                f"{path} is checkpoint {found[:12]}, and state.json lists {content[:12]}{_RESTORE}"
            )


def _of_trained(directory: Path, *, deep: bool) -> Iterator[str]:
    """Whether what was trained is there, if what is deployed was merged from it."""
    if not Attempt.read(directory).settings.merges:
        return
    yield from _of_parts(directory, [TRAINED], deep=deep, required=True)
    _, content = CheckpointManifest.read(directory / "checkpoint").parents or ("", "")
    path = directory / TRAINED
    if (path / MANIFESTS["checkpoint"]).is_file():
        found = CheckpointManifest.read(path).content
        if found != content:
            yield f"{path} is not what the checkpoint beside it was merged from{_RESTORE}"


def _of_rows(directory: Path) -> Iterator[str]:
    """Whether rows and ranks can be read."""
    for file in sorted((directory / "rows").glob("*.ndjson")):
        read_rows([str(file)])
    for file in sorted((directory / "ranks").glob("*.parquet")):
        SavedRanks.open(file)
    yield from ()


def _of_parts(
    directory: Path, names: Sequence[str], *, deep: bool, required: bool = False
) -> Iterator[str]:
    for name in names:
        path = directory / name
        if path.is_dir():
            yield from (_with_repair(one) for one in check(path, deep=deep))
        elif required:
            yield f"{path} is missing{_RESTORE}"


def _with_repair(problem: str) -> str:
    return problem if "restore it" in problem or ";" in problem else problem + _RESTORE


def _others(place: Layout) -> list[Path]:
    """The directories of weeks that are not accepted; what is being made need not be complete."""
    again = sorted((place.redo / "weeks").glob("[0-9]" * 4))
    return [*place.rejected(), *place.rolled_back(), *again, place.pending, place.redo / "pending"]


def _of_ledger(place: Layout, state: State) -> Iterator[str]:
    """Whether the chain of the ledger holds, and its actions lead to the weeks of state.json.

    What was accepted before the ledger began, or in a line whose body was removed, is not compared.
    """
    ledger = read_ledger(place)
    if ledger.problem is not None:
        yield ledger.problem
        return
    if not ledger.actions or None in ledger.actions or state.redone or state.rolling_back:
        return
    actions = [one for one in ledger.actions if one is not None]
    first = min((one.week for one in actions if one.week), default=state.last + 1)
    found = _accepted(actions)
    listed = {week.number: week.checkpoint for week in state.weeks if week.number >= first}
    missing = [number for number in listed if found.get(number) != listed[number]]
    missing += [number for number in found if number >= first and number not in listed]
    if missing:
        weeks = some_names([f"week {number}" for number in sorted(missing)])
        yield (
            f"{place.history} does not lead to the weeks of state.json ({weeks}): lines are "
            "missing at its end; restore the file from a backup, or move it away, and the next "
            "action begins another"
        )


def _accepted(actions: Sequence[Action]) -> dict[int, str]:
    """The checkpoints of the accepted weeks after these actions."""
    found: dict[int, str] = {}
    for one in actions:
        if one.week is None:
            continue
        if one.action in {ACCEPTED, UNRESOLVED, REDONE}:
            found = {week: content for week, content in found.items() if week < one.week}
            found[one.week] = one.checkpoint or ""
        elif one.action == ROLLED_BACK:
            found = {week: content for week, content in found.items() if week <= one.week}
    return found


def _of_deletion(place: Layout, path: Path) -> Iterator[str]:
    """Whether no pair of a stop list is in the state, but for weeks that have readmitted it."""
    stop = read_stop_list(path)
    keys = Keys.of(sorted(stop.keys))
    readmits = False
    weeks = [place.start, *(place.week(number) for number in place.numbers_from(1))]
    for directory in [*weeks, *_others(place)]:
        readmits = readmits or _readmits(directory, stop)
        for task in () if readmits else _tasks(directory):
            opened = open_task(task)
            found = sum(int(opened.split(one).keys.among(keys).sum()) for one in opened.counts)
            if found:
                yield (
                    f"{task} has {found} pairs of the deletion {stop.request[:12]}; run its "
                    f"'vlcpctl forget' again for {place.root}"
                )


def _readmits(directory: Path, stop: StopList) -> bool:
    return (directory / "week.json").exists() and stop.request in Attempt.read(directory).readmitted


def _tasks(directory: Path) -> Iterator[Path]:
    stream = directory / "stream"
    if (stream / MANIFESTS["stream"]).is_file():
        yield from (stream / entry.path for entry in read_stream(stream).tasks)
    if (directory / "buffer" / MANIFESTS["task"]).is_file():
        yield directory / "buffer"


def repair(place: Layout) -> None:
    """Set `current` and the modes of all files and directories; only for the holder of the lock.

    Says what it repairs. What stands in the place of `current` is moved aside, since files of users
    may be in it. Raises BadInput if state.json cannot be read.
    """
    _repair_modes(place.root)
    state = read_state(place)
    if not state.start.ready or state.redone or state.rolling_back:
        return
    wanted = place.week(state.last) / "checkpoint"
    fault = place.fault_of_current([state.last])
    if fault is not None:
        aside = _free(place.current)
        place.current.rename(aside)
        say(f"{place.current}, {fault}, is moved to {aside}")
    if not os.path.lexists(place.current):
        place.point_to(state.last)
        say(f"{place.current} is a link to {wanted} again")


def _repair_mode(path: Path) -> bool:
    """Let the owner read and write it; whether that was needed."""
    if path.is_symlink():
        return False
    mode = stat.S_IMODE(path.stat().st_mode)
    needed = mode | (0o700 if path.is_dir() else 0o600)
    if needed != mode:
        path.chmod(needed)
    return needed != mode


def _repair_modes(root: Path) -> None:
    changed = int(_repair_mode(root))
    for at, directories, files in os.walk(root):
        # Before the walk descends: what is below an unreadable directory is not listed.
        changed += sum(_repair_mode(Path(at) / name) for name in (*directories, *files))
    if changed:
        say(f"{root}: {changed} files and directories can be read and written again")


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.old{number or ''}") for number in range(1000))
    return next(one for one in names if not os.path.lexists(one))
