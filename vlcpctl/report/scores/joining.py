"""Rows of one run joined: each run gets its start, and its data the places that its chain gave it.

Rows of a run are written at different times. An early checkpoint does not record which data will
be tasks of the stream later, nor does the model that the run started from. Data are matched
by their content id. Names of tasks start with the step, with two digits in a run's first hundred
tasks and three in later ones; here they get as many digits in every row, so that they sort.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec import structs

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row, Subjects, distinct, firsts
from vlcpctl.report.scores.baseline import Baseline
from vlcpctl.report.scores.runs import is_outside, is_upper_bound, step_of

Chain = tuple[str, int]  # the run and seed
_USUAL = 2  # digits of a task's number
_DIGITS = 6  # of the content id that tells data of one name apart


@dataclass(frozen=True)
class JoinedRows:
    """Rows with their start and places; `starts` has the names of each run's starting models.

    `baseline` has the rows of the model given with --baseline, once for each run and seed that it
    is compared with, as if they were that run's start; it is None if no model was given.
    """

    rows: list[Row]
    starts: dict[str, tuple[str, ...]]
    baseline: list[Row] | None = None


class _Position(NamedTuple):
    """The place of data in a run: task and name, according to a row of this step.

    The row of a later checkpoint counts more, and a place in the stream more than none.
    """

    known_at: int
    is_inside: bool
    before: int  # minus its step in the stream
    task: str

    @property
    def task_step(self) -> int | None:
        """The place in the stream."""
        return -self.before if self.is_inside else None


def joined(
    rows: Sequence[Row],
    kept: Collection[str] = (),
    allow_mixed: Collection[str] = (),
    baseline: Baseline | None = None,
) -> JoinedRows:
    """The rows, each once, those of a run's start as rows before its first task.

    An untrained model from which a run starts is shown there, and is no longer a run of its own,
    unless its name is in `kept`. Raises BadInput for rows that contradict each other, and for a
    baseline without rows on own galleries.
    """
    chains = _chains_by_start(rows)
    places = _places(rows, chains)
    names: dict[str, dict[str, None]] = {}
    found = []
    for row in rows:
        is_score = row.since is None and row.gallery == "own"
        starting = chains.get(row.checkpoint, {}) if is_score else {}
        for run, seed in starting:
            names.setdefault(run, {})[row.run] = None
            start = structs.replace(row, run=run, seed=seed, step=None)
            found.append(_placed(start, places[run, seed], keeps_place=_is_untrained(row)))
        if not starting or row.step is not None or row.run in kept:
            place = places.get((row.run, row.seed), {})
            found.append(_placed(_since_start(row, chains), place))
    starts = {run: tuple(sorted(models)) for run, models in names.items()}
    of_baseline = _baseline_rows(rows, places, baseline) if baseline else []
    named = numbered_alike(_with_one_name([*found, *of_baseline], len(found)))
    return JoinedRows(
        distinct(named[: len(found)], allow_mixed),
        starts,
        distinct(named[len(found) :], allow_mixed) if baseline else None,
    )


def _baseline_rows(
    rows: Iterable[Row],
    places: Mapping[Chain, dict[str, _Position]],
    baseline: Baseline,
) -> list[Row]:
    """The rows of the baseline with the places that each run gave its data."""
    measured: dict[str, list[Row]] = {}
    for row in rows:
        if row.since is None and row.gallery == "own":
            measured.setdefault(row.checkpoint, []).append(row)
    found = [
        _placed(
            structs.replace(row, run=run, seed=seed, step=None),
            of_run,
            keeps_place=_is_untrained(row),
        )
        for (run, seed), of_run in places.items()
        for row in measured.get(baseline.of(seed) or "", ())
    ]
    if not found:
        raise BadInput(
            f"--baseline: {baseline.text} has no rows on the own gallery of any data; "
            "evaluate it on the data to compare"
        )
    return found


def _chains_by_start(rows: Iterable[Row]) -> dict[str, dict[Chain, None]]:
    """The runs and seeds that start from each checkpoint, in order."""
    found = {
        (row.start, row.run, row.seed)
        for row in firsts(rows, "model_part")
        if row.start and row.start != row.checkpoint
    }
    chains: dict[str, dict[Chain, None]] = {}
    for start, run, seed in sorted(found):
        chains.setdefault(start, {})[run, seed] = None
    return chains


def _places(rows: Sequence[Row], starts: Collection[str]) -> dict[Chain, dict[str, _Position]]:
    """The place of each data id in each run, as the run's latest checkpoint has it.

    An upper bound has the places of the other runs where these agree: it is compared with them.
    Runs with a checkpoint in `starts` do not count; the runs that start there are compared.
    """
    places: dict[Chain, dict[str, _Position]] = {}
    bounds, before = set(), set()
    for row in firsts(rows, "model_part"):
        places[row.run, row.seed] = {}
        if is_upper_bound(row.run, row.method):
            bounds.add((row.run, row.seed))
        if row.checkpoint in starts:
            before.add((row.run, row.seed))
    for row in rows:
        if row.gallery == "own":
            step = row.task_step
            found = _Position(step_of(row), step is not None, -(step or 0), row.task)
            of_run = places[row.run, row.seed]
            if found >= of_run.setdefault(row.data, found):
                of_run[row.data] = found
    _share(places, bounds, before)
    return places


def _share(
    places: dict[Chain, dict[str, _Position]], bounds: set[Chain], before: set[Chain]
) -> None:
    """Give upper bounds the places on which all other runs with tasks agree, but those `before`."""
    others = [of_run for chain, of_run in places.items() if chain not in bounds | before]
    trained = [of_run for of_run in others if any(one.known_at >= 0 for one in of_run.values())]
    for chain in bounds:
        for data in places[chain]:
            said = {one[data].task_step: one[data] for one in trained if data in one}
            said.pop(None, None)  # a run that has not reached the last task of the upper bound
            if len(said) == 1:
                (places[chain][data],) = said.values()


def _placed(row: Row, places: dict[str, _Position], *, keeps_place: bool = True) -> Row:
    """The row with the place of its data in the run.

    Data that the run does not know are outside its stream, unless the row `keeps_place`.
    """
    if row.gallery != "own":
        return row
    place = places.get(row.data)
    if place is None:
        return row if keeps_place else structs.replace(row, task_step=None)
    if (place.task_step, place.task) == (row.task_step, row.task):
        return row
    tasks = (place.task,) if len(row.tasks) == 1 else row.tasks
    return structs.replace(row, task_step=place.task_step, task=place.task, tasks=tasks)


def _is_untrained(start: Row) -> bool:
    """Whether a start has no places of its own stream, which are not those of the run."""
    return start.config is None and start.step is None


def _since_start(row: Row, chains: dict[str, dict[Chain, None]]) -> Row:
    """A comparison with the start of the run as one with the run's own first model."""
    since = row.since
    if since is None or (row.run, row.seed) not in chains.get(since.checkpoint or "", {}):
        return row
    return structs.replace(row, since=replace(since, run=row.run, step=None))


def _with_one_name(rows: Sequence[Row], first: int) -> list[Row]:
    """The rows, with one name for data outside the stream that have several, and no other's.

    The `first` of the rows are of other checkpoints than the rest, whatever their runs.
    """
    names: dict[str, str] = {}
    for row in firsts(rows, "data_part"):
        if is_outside(row):
            names[row.data] = min(names.get(row.data, row.task), row.task)
    if not names:
        return list(rows)
    named = [_renamed(row, names.get(row.data, row.task)) for row in rows]
    parts = named[:first], named[first:]
    shared = set().union(*(_with_name_of_another(part) for part in parts))
    return [
        _renamed(row, f"{row.task} ({row.data[:_DIGITS]})") if row.data in shared else row
        for row in named
    ]


def _renamed(row: Row, name: str) -> Row:
    if not is_outside(row) or row.task == name:
        return row
    return structs.replace(row, task=name, tasks=(name,) if len(row.tasks) == 1 else row.tasks)


def _with_name_of_another(rows: Iterable[Row]) -> set[str]:
    """The data outside the stream with the name of other data, evaluated on the same checkpoint.

    Data of one name that no checkpoint was evaluated on together may be one data set that was
    changed, which is an error elsewhere.
    """
    subjects = Subjects()
    found: dict[tuple[int, int], dict[str, bool]] = {}  # for each id, whether it is outside
    for row in rows:
        if row.gallery == "own":
            ids = found.setdefault(subjects.of(row), {})
            ids[row.data] = row.task_step is None
    return {
        data
        for ids in found.values()
        for data, is_outside in ids.items()
        if len(ids) > 1 and is_outside
    }


def numbered_alike(rows: Sequence[Row]) -> list[Row]:
    """The rows, with the longest number of any task's name as the length of all.

    Names that do not start with their step are left as they are.
    """
    # Merged rows share lists of names, which are read and padded once.
    some = firsts(rows, "data_part")
    merged = {row.tasks for row in some if row.gallery == "merged"}
    named = {pair for names in merged for pair in enumerate(names)}
    named |= {
        (row.task_step, row.task)
        for row in some
        if row.gallery != "merged" and row.task_step is not None
    }
    numbers = (number_of(name, step) for step, name in named)
    digits = max((len(number) for number in numbers if number is not None), default=_USUAL)
    known: dict[object, Row] = {}
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    return list(rows) if digits <= _USUAL else [_padded_row(r, digits, known, names) for r in rows]


def padded(name: str, step: int, digits: int) -> str:
    """The name with its number padded to this many digits, if it starts with its step.

    >>> padded("05-week", 5, 3), padded("week", 5, 3), padded("2024-week", 5, 3)
    ('005-week', 'week', '2024-week')
    """
    number = number_of(name, step)
    return name if number is None else number.rjust(digits, "0") + name[len(number) :]


def number_of(name: str, step: int) -> str | None:
    """The digits with which a name starts, if they are its step and a dash follows; else None.

    >>> number_of("05-week", 5), number_of("05-week", 6), number_of("5 weeks", 5)
    ('05', None, None)
    """
    number, dash, _ = name.partition("-")
    is_step = dash and number.isascii() and number.isdigit() and int(number[:20]) == step
    return number if is_step and _USUAL <= len(number) <= 4 else None


def _padded_row(
    row: Row,
    digits: int,
    known: dict[object, Row],
    names: dict[tuple[str, ...], tuple[str, ...]],
) -> Row:
    """The row with padded names: those of a `known` row of the same data, if there is one.

    Lists of `names`, which rows of different data share, are padded once.
    """
    first = known.get(row.data_part)
    if first is None:
        task, tasks = row.task, row.tasks
        if row.gallery == "merged":
            if tasks not in names:
                names[tasks] = tuple(padded(one, step, digits) for step, one in enumerate(tasks))
            tasks = names[tasks]
        elif row.task_step is not None:
            task = padded(task, row.task_step, digits)
            tasks = (task,) if tasks == (row.task,) else tasks
        is_same = (task, tasks) == (row.task, row.tasks)
        first = row if is_same else structs.replace(row, task=task, tasks=tasks)
        known[row.data_part] = first
    return row if first.data_part is row.data_part else row.with_names_of(first)
