"""Rows of one run joined: each run gets its start, and its data the places that its chain gave it.

Rows of a run are written at different times. An early checkpoint does not record which data will
be tasks of the stream later, nor does the model that the run started from. Data are matched
by their content id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.files.rows import EarlierCheckpoint, Row, distinct, firsts
from vlcpctl.report.scores import (
    BASE,
    START,
    Lineage,
    grouped,
    is_outside,
    is_upper_bound,
    step_of,
    track_key,
)

Chain = tuple[str, int]  # the run and seed
_DIGITS = 6  # of a content id that tells data of one name apart
_MOST_SHOWN = 200  # characters of an unknown name
_NOT_EVALUATED = "the model that it started from was not evaluated"
_NO_START = "it did not start from an imported model; use --baseline"


@dataclass(frozen=True)
class Baseline:
    """The model of --baseline: a checkpoint for each seed; `text` is how the user named it."""

    text: str
    by_seed: Mapping[int, str]

    def of(self, seed: int) -> str | None:
        """The checkpoint to compare a seed with: that of this seed, or the only one."""
        only = set(self.by_seed.values())
        return self.by_seed.get(seed, next(iter(only)) if len(only) == 1 else None)


@dataclass(frozen=True)
class JoinedRows:
    """Rows with their start and places; `starts` has the names of each run's starting models.

    `baseline` has the rows of the model given with --baseline, once for each run and seed that it
    is compared with, as if they were that run's.
    """

    rows: list[Row]
    starts: Mapping[str, tuple[str, ...]]
    baseline: Sequence[Row] = ()


class _Position(NamedTuple):
    """The place of data in a run: task and name, according to a row of this step.

    The row of a later checkpoint counts more, and a place in the stream more than none.
    """

    known_at: int
    is_inside: bool
    before: int  # minus its step in the stream
    task: str
    task_step: int | None  # its step in the stream


def find_baseline(text: str, rows: Sequence[Row]) -> Baseline:
    """The baseline named by a run in the rows or by a checkpoint's directory.

    Raises UsageError if the name is unknown, and BadInput if the rows have none of the checkpoint.
    """
    by_seed: dict[int, Row] = {}
    for row in rows:
        if row.run == text and row.since is None:
            first = by_seed.setdefault(row.seed, row)
            if step_of(row) >= step_of(first):
                by_seed[row.seed] = row
    if by_seed:
        return Baseline(text, {seed: by_seed[seed].checkpoint for seed in sorted(by_seed)})
    try:
        is_path = Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        is_path = False
    if not is_path:
        unknown = unknown_name("run", text[:_MOST_SHOWN], {row.run for row in rows})
        raise UsageError(f"--baseline: {unknown}; or give the directory of a checkpoint")
    content = CheckpointManifest.read(Path(text)).content
    seeds = [row.seed for row in rows if row.checkpoint == content]
    if not seeds:
        raise BadInput(
            f"--baseline: the rows have none of the checkpoint {text} ({content[:12]}); evaluate "
            "it on the same data"
        )
    return Baseline(text, {min(seeds): content})


def joined(
    rows: Sequence[Row],
    kept: Collection[str] = (),
    allow_mixed: Collection[str] = (),
    baseline: Baseline | None = None,
) -> JoinedRows:
    """The rows, each once, those of a run's start as rows before its first task.

    An untrained model from which a run starts is shown there, and is no longer a run of its own,
    unless its name is in `kept`. Raises BadInput for rows that contradict each other.
    """
    chains: dict[str, set[Chain]] = {}  # by the checkpoint that they start from
    for row in rows:
        if row.start and row.start != row.checkpoint:
            chains.setdefault(row.start, set()).add((row.run, row.seed))
    places = _places(rows, chains)
    names: dict[str, set[str]] = {}
    found, of_baseline = [], []
    for row in rows:
        is_score = row.since is None and row.gallery == "own"
        starting = sorted(chains[row.checkpoint]) if is_score and row.checkpoint in chains else []
        for run, seed in starting:
            names.setdefault(run, set()).add(row.run)
            found.append(_as_start(row, run, seed, places))
        if not starting or row.step is not None or row.run in kept:
            place = places.get((row.run, row.seed), {})
            of_run = row if row.since is None else _since_start(row, row.since, chains)
            found.append(_placed(of_run, place))
        if baseline is not None and is_score:
            of_baseline += [
                _as_start(row, run, seed, places)
                for run, seed in places
                if baseline.of(seed) == row.checkpoint
            ]
    named = _with_own_names([*found, *of_baseline], len(found))
    return JoinedRows(
        distinct(named[: len(found)], allow_mixed),
        {run: tuple(sorted(models)) for run, models in names.items()},
        distinct(named[len(found) :], allow_mixed),
    )


def _as_start(row: Row, run: str, seed: int, places: Mapping[Chain, dict[str, _Position]]) -> Row:
    """The row as one of a run's start, or of its baseline, where the run has placed its data."""
    # The places of an untrained model are not those of the run.
    is_untrained = row.config is None and row.step is None
    start = structs.replace(row, run=run, seed=seed, step=None)
    return _placed(start, places.get((run, seed), {}), keeps_place=is_untrained)


def _places(rows: Sequence[Row], starts: Collection[str]) -> dict[Chain, dict[str, _Position]]:
    """The place of each data id in each run, as the run's latest checkpoint has it.

    An upper bound has the places on which all other runs with tasks agree: it is compared with
    them. Runs with a checkpoint in `starts` do not count; the runs that start there are compared.
    """
    places: dict[Chain, dict[str, _Position]] = {}
    bounds, before = set[Chain](), set[Chain]()
    for row in rows:
        chain = row.run, row.seed
        if chain not in places and is_upper_bound(row.run, row.method):
            bounds.add(chain)
        of_run = places.setdefault(chain, {})
        if row.checkpoint in starts:
            before.add(chain)
        if row.gallery == "own":
            step = row.task_step
            found = _Position(step_of(row), step is not None, -(step or 0), row.task, step)
            if found >= of_run.setdefault(row.data, found):
                of_run[row.data] = found
    _share(places, bounds, before)
    return places


def _share(
    places: Mapping[Chain, dict[str, _Position]], bounds: set[Chain], before: set[Chain]
) -> None:
    others = [of_run for chain, of_run in places.items() if chain not in bounds | before]
    trained = [of_run for of_run in others if any(one.known_at >= 0 for one in of_run.values())]
    for chain in bounds:
        for data in places[chain]:
            said = {one[data].task_step: one[data] for one in trained if data in one}
            said.pop(None, None)  # a run that has not reached the last task of the upper bound
            if len(said) == 1:
                (places[chain][data],) = said.values()


def _placed(row: Row, places: Mapping[str, _Position], *, keeps_place: bool = True) -> Row:
    """The row with the place of its data in the run.

    Data that the run does not know are outside its stream, unless the row `keeps_place`.
    """
    place = places.get(row.data) if row.gallery == "own" else None
    if place is None:
        is_kept = keeps_place or row.gallery != "own"
        return row if is_kept else structs.replace(row, task_step=None)
    if place.task_step == row.task_step and place.task == row.task:
        return row
    return _named(structs.replace(row, task_step=place.task_step), place.task)


def _named(row: Row, name: str) -> Row:
    tasks = (name,) if len(row.tasks) == 1 else row.tasks
    return row if row.task == name else structs.replace(row, task=name, tasks=tasks)


def _since_start(row: Row, since: EarlierCheckpoint, chains: Mapping[str, set[Chain]]) -> Row:
    """A comparison with the start of the run as one with the run's own first model."""
    if (row.run, row.seed) not in chains.get(since.checkpoint or "", ()):
        return row
    return structs.replace(row, since=replace(since, run=row.run, step=None))


def _with_own_names(rows: Sequence[Row], first: int) -> list[Row]:
    """The rows, with one name for data outside the stream that have several, and no other's.

    The `first` of the rows are of other checkpoints than the rest, whatever their runs. Data of one
    name that no checkpoint was evaluated on together may be one data set that was changed, which is
    an error elsewhere.
    """
    names: dict[str, str] = {}
    data: dict[str, set[str]] = {}  # by name
    every = firsts(rows, "data_part")
    outside = [row for row in every if is_outside(row)]
    for row in outside:
        names[row.data] = min(names.get(row.data, row.task), row.task)
    for row in every:
        if row.gallery == "own":
            data.setdefault(row.task, set()).add(row.data)
    if all(row.task == names[row.data] and len(data[row.task]) == 1 for row in outside):
        return list(rows)
    named = [_named(row, names[row.data]) if is_outside(row) else row for row in rows]
    ids: dict[object, set[str]] = {}  # by checkpoint and name
    for number, row in enumerate(named):
        if row.gallery == "own":
            of_model = number < first, row.run, row.seed, row.step, *track_key(row)
            ids.setdefault((*of_model, row.task, row.tasks), set()).add(row.data)
    shared = {one for found in ids.values() if len(found) > 1 for one in found}
    return [
        _named(row, f"{row.task} ({row.data[:_DIGITS]})")
        if row.data in shared and is_outside(row)
        else row
        for row in named
    ]


def lineages(
    rows: Iterable[Row], starts: Mapping[str, tuple[str, ...]], baseline: Baseline | None
) -> dict[str, Lineage]:
    """Where each run of the rows is, and what it is compared with; `starts` as in JoinedRows.

    The baseline itself is not compared, nor, without one, models that other runs start from or
    untrained ones.
    """
    rows = [row for row in rows if row.since is None]
    begun = {row.start for row in rows if row.gallery == "own"}
    of_runs = {}
    named: tuple[str, ...]
    for name, members in grouped(firsts(rows, "model_part"), lambda row: row.run).items():
        steps = sorted({START, *map(step_of, members)})
        last, before = steps[-1], steps[-2:][0]
        models = {(row.seed, row.checkpoint) for row in members if step_of(row) == last}
        begins = starts.get(name, ())
        unknown = None
        if baseline is not None:
            base, named = BASE, (baseline.text,)
            is_compared = any(baseline.of(seed) != checkpoint for seed, checkpoint in models)
        else:
            if not any(row.step is None for row in members):
                is_known = any(row.start for row in members)
                unknown = _NOT_EVALUATED if is_known else _NO_START
            base, named = START, begins or (() if unknown else ("start",))
            is_start = any(checkpoint in begun for _, checkpoint in models)
            is_compared = last != START and not (unknown and is_start)
        of_runs[name] = Lineage(last, before, base, begins, named, unknown, is_compared)
    return of_runs
