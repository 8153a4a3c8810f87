"""Rows become tracks, runs and score matrices: what every table, chart and condition is about.

Shapes: S seeds; R steps, with the start before and another baseline behind them R + 2 rows; K tasks
of the stream, and D columns: the tasks, then data outside of the stream.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.core.words import printable
from vlcpctl.files.rows import EarlierCheckpoint, Row, firsts
from vlcpctl.metrics.definitions import DEFINITIONS, Definition

if TYPE_CHECKING:
    from vlcpctl.report.intervals import Interval

T = TypeVar("T")
K = TypeVar("K")
Matrix = NDArray[np.float64]
Scores = dict[str, Matrix]  # by metric key
Cell = tuple[int, int, int]  # number of the seed, step, column
Place = tuple[str, tuple[str, ...]]  # the task and tasks of data outside the stream
TrackKey = tuple[str, str, str, str]
# What the last model is compared with: the baseline; the model of the step before; on a task of the
# stream, the model that had just learned it; on an index, the model that built it, with its own
# queries, or the last model on an index that it has built again.
Against = Literal["baseline", "step before", "learned", "old index", "new index"]

START = -1  # the step of a model not yet trained on the stream
BASE = -2  # that of a baseline that is not the model at the start: step + 1 is the last row
BOUND, FREE, BUFFER = GROUPS = ("Joint training (upper bound)", "Memory free", "Memory buffer")
FEWEST_IMAGES = 50  # of an earlier task that is judged by itself
# Of the scores of a run, so that a row of a late step does not fill the memory. A run of 1000 tasks
# with ten metrics takes a tenth of it.
MOST_CELLS = 10**8
_SHOWN = 6  # cells named in a message before "and N more"
_WHO: dict[Against, str] = {
    "baseline": "its baseline",
    "step before": "its model of the step before",
    "learned": "its model that had just learned it",
}


@dataclass(frozen=True)
class Spread:
    """A number with one value per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return math.fsum(self.values) / len(self.values)

    @property
    def sd(self) -> float | None:
        """The sample standard deviation; None for one seed.

        >>> Spread((1.0, 2.0, 3.0)).sd
        1.0
        """
        if len(self.values) < 2:
            return None
        squares = math.fsum((value - self.mean) ** 2 for value in self.values)
        return math.sqrt(squares / (len(self.values) - 1))

    def minus(self, other: Spread) -> Spread:
        """The differences, seed by seed."""
        return Spread(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))


def over_seeds(values: Iterable[float | None]) -> Spread | None:
    """The values of all seeds; None without any, or if that of a seed is None or NaN.

    >>> over_seeds([1.0, 2.0]), over_seeds([1.0, None])
    (Spread(values=(1.0, 2.0)), None)
    """
    known = []
    for value in values:
        if value is None or math.isnan(value):
            return None
        known.append(value)
    return Spread(tuple(known)) if known else None


def step_of(model: Row | EarlierCheckpoint) -> int:
    """The step of a checkpoint; START for a model not yet trained on the stream."""
    return START if model.step is None else model.step


def is_outside(row: Row) -> bool:
    """Whether a row is of data outside the stream of its run."""
    return row.gallery == "own" and row.task_step is None


def is_upper_bound(run: str, method: str) -> bool:
    """Whether a run is joint training, by its method or its name."""
    return method == "joint" or "joint" in run.lower().replace("_", "-").split("-")


def track_key(row: Row | Track) -> TrackKey:
    """What separates tracks: evaluator, protocol, variant and split."""
    return row.evaluator, row.protocol, row.map_variant or "", row.split


@dataclass(frozen=True)
class Lineage:
    """Where a run is: its last step and the one evaluated before it, over all tracks, or START.

    `models` are the names of what it is compared with; empty if `unknown` says why there is none.
    The rows of these are START, or with --baseline BASE.
    """

    last: int
    before: int
    base: int = START
    starts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    unknown: str | None = None
    is_compared: bool = False


@dataclass(frozen=True, eq=False)
class Run:
    """One run: `own` has its scores by metric key (S, R + 2, D), `merged` (S, R, K); NaN: no row.

    `steps` are those on its stream in this track: 0 without any, as of a model at the start.
    `averages` are the data outside that are means over several, `guards` those that must not get
    worse. `rows` has those on own galleries by number of the seed, step and column.
    """

    name: str
    method: str
    buffer: str | None
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    outside: tuple[str, ...]
    averages: frozenset[str]
    guards: frozenset[str]
    steps: int
    final_only: bool
    galleries: frozenset[str]
    own: Scores = field(repr=False)
    merged: Scores = field(repr=False)
    rows: Mapping[Cell, Row] = field(repr=False)
    of: Lineage
    unmeasured: frozenset[int] = frozenset()  # tasks that no last model was evaluated on
    # Made once: tables, charts and facts show the same summaries.
    summaries: dict[tuple[str, str], Spread | None] = field(
        init=False, default_factory=dict, repr=False
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """The metric keys that it has, in order."""
        return tuple(self.own)

    @cached_property
    def data(self) -> tuple[str, ...]:
        """What the columns are."""
        return (*self.tasks, *self.outside)

    @cached_property
    def last_data(self) -> dict[int, str]:
        """By task, the id of the data that the last model of the first seed was evaluated on."""
        last = ((task, self.rows.get((0, self.steps - 1, task))) for task in range(len(self.tasks)))
        return {task: row.data for task, row in last if row is not None}

    @property
    def group(self) -> str:
        """The block of the comparison table that the run belongs to, as papers group them."""
        if is_upper_bound(self.name, self.method):
            return BOUND
        return BUFFER if self.buffer else FREE

    @cached_property
    def counted(self) -> list[int]:
        """The tasks that count, of those that it has learned, or of all without a step."""
        tasks = range(self.steps or len(self.tasks))
        return [task for task in tasks if task not in self.unmeasured]

    @cached_property
    def has_start(self) -> bool:
        """Whether the model before the first task was evaluated on any task."""
        tasks = slice(len(self.tasks))
        return any(not np.isnan(own[:, START + 1, tasks]).all() for own in self.own.values())

    @cached_property
    def steps_on(self) -> dict[int, list[int]]:
        """By column, the steps after which any seed was evaluated on it, START included."""
        found: dict[int, list[int]] = {}
        for column, step in sorted({(column, step) for _, step, column in self.rows}):
            if step != BASE:
                found.setdefault(column, []).append(step)
        return found

    @cached_property
    def measured(self) -> dict[str, Any]:
        """By metric, (D,) whether any of its models has it on each column."""
        return {key: (~np.isnan(own[:, :-1])).any(axis=(0, 1)) for key, own in self.own.items()}

    def at(self, key: str, step: int, column: int) -> Spread | None:
        """The score on a column after a step, or START; None if a seed lacks it."""
        own = self.own.get(key)
        if own is None or step + 1 >= own.shape[1] - 1:
            return None
        return over_seeds(own[:, step + 1, column].tolist())

    def on_merged(self, key: str, step: int) -> Spread | None:
        """The score after a step on the tasks up to it."""
        merged = self.merged.get(key)
        return None if merged is None else over_seeds(merged[:, step, step].tolist())

    def mean_at(self, key: str, step: int) -> Spread | None:
        """The mean score after a step over the tasks up to it, or at START over those it learns.

        Of START, one value stands for seeds that start from the same scores.
        """
        tasks = self.counted if step == START else list(range(step + 1))
        means = self.means(key, step, tasks)
        return over_seeds(means[:1] if step == START and len(set(means)) == 1 else means)

    def means(self, key: str, step: int, tasks: Sequence[int]) -> list[float]:
        """The mean score after a step over some tasks, seed by seed; empty without any."""
        found = self.own.get(key)
        is_known = bool(tasks) and max(tasks) < len(self.tasks)
        if found is None or not is_known or step + 1 >= found.shape[1] - 1:
            return []
        return [float(np.mean(seed[step + 1, tasks])) for seed in found]

    def change(self, key: str) -> Spread | None:
        """The final score minus that of the model before the first task, means over the tasks."""
        final = self.summary(key, "own_final")
        start = over_seeds(self.means(key, START, self.counted))
        return None if final is None or start is None else final.minus(start)

    def summary(self, key: str, name: str) -> Spread | None:
        """A metric of DEFINITIONS; None if it is undefined for any seed."""
        if (key, name) not in self.summaries:
            one = DEFINITIONS[name]
            known = key in self.own and self.why_undefined(one) is None
            values = map(one.value, self._matrices(key, one.gallery)) if known else ()
            self.summaries[key, name] = over_seeds(values)
        return self.summaries[key, name]

    def _matrices(self, key: str, gallery: str) -> Sequence[Matrix]:
        """What definitions take, for each seed: steps and tasks that count, as they are learned.

        That of `outside` has one row, of the last model, and the data that have the metric.
        """
        if gallery == "merged":
            return list(self.merged[key][:, : self.steps])
        if gallery == "outside":
            return list(self._last_outside(key))
        steps = self.counted if gallery == "own" else [START, *self.counted]
        columns = [*self.counted, *range(self.steps, len(self.tasks))]
        places = np.ix_([step + 1 for step in steps], columns)
        # In C order, on which the last digit of a sum depends.
        return [np.ascontiguousarray(seed[places]) for seed in self.own[key]]

    def _last_outside(self, key: str) -> Matrix:
        """(S, 1, sets) of the last model, on data outside that have the metric, but averages."""
        own, last = self.own[key], self.of.last
        outside = enumerate(self.outside, len(self.tasks))
        sets = [n for n, name in outside if name not in self.averages and self.measured[key][n]]
        if last + 1 < own.shape[1] - 1:
            return own[:, last + 1 : last + 2, sets]
        return np.full((len(own), 1, len(sets)), np.nan)  # it was evaluated in another track

    @cached_property
    def looked_ahead(self) -> bool:
        """Whether every model was evaluated on the tasks after its own, in any metric key."""
        return any(
            not any(
                np.isnan(own[:, step + 1, [task for task in self.counted if task > step]]).any()
                for step in self.counted
            )
            for own in self.own.values()
        )

    def needs_second_task(self, one: Definition) -> bool:
        """Whether a run of a single task so far lacks only another one for a summary."""
        has_rows = one.gallery != "merged" or "merged" in self.galleries
        return len(self.counted) == 1 and self.steps > 0 and one.least_tasks > 1 and has_rows

    def why_undefined(self, one: Definition) -> str | None:
        """Why a summary is undefined for a run in any metric key; None if it can be defined."""
        if one.gallery == "outside":
            return self._why_no_outside()
        gallery = "own" if one.gallery == "start" else one.gallery
        if gallery not in self.galleries:
            return f"it has no rows on {gallery} galleries"
        if self.steps == 0:
            return "it has not been trained on the stream"
        if self.final_only and one.compares_steps:
            return "it was evaluated at its last step only"
        if self.needs_second_task(one):
            needs = "it needs" if one.looks_ahead else "forgetting needs"
            return f"it has one step, and {needs} two"
        lacks = "it lacks rows of tasks before they were learned; evaluate every checkpoint on all "
        return f"{lacks}tasks" if one.looks_ahead and not self.looked_ahead else None

    def _why_no_outside(self) -> str | None:
        sets = [one for one in self.outside if one not in self.averages]
        if not sets:
            return "it was not evaluated on data outside the stream"
        if self.of.last == START:
            return "it has not been trained on the stream"
        found = [one for one in map(self._last_outside, self.own) if one.size]
        if all(np.isnan(one).any() for one in found):
            return (
                "its last model was not evaluated on all data outside the stream: "
                f"{some_names(sets)}"
            )
        return None


@dataclass(frozen=True, eq=False)
class Track:
    """Runs that can be compared, of one evaluator, protocol, variant and split.

    `runs` have rows on their stream; `others` were evaluated here on data outside of it only.
    """

    evaluator: str
    protocol: str
    map_variant: str | None
    split: str
    keys: tuple[str, ...]
    runs: tuple[Run, ...]
    others: tuple[Run, ...] = ()
    oracle: Run | None = None  # whose final scores those of the other runs are compared with

    @property
    def every(self) -> tuple[Run, ...]:
        """All runs by name."""
        return tuple(sorted((*self.runs, *self.others), key=attrgetter("name")))

    def runs_with(self, gallery: str) -> tuple[Run, ...]:
        """The runs that a number on this gallery is about."""
        others = [run for run in self.others if run.of.last != START]
        return (*self.runs, *others) if gallery == "outside" else self.runs

    @property
    def title(self) -> str:
        """Such as "retrieval, cross-modal, test split"."""
        variant = f"map_variant {self.map_variant}" if self.map_variant else ""
        parts = (self.evaluator, self.protocol, variant, f"{self.split} split")
        return ", ".join(part for part in parts if part)


def with_oracle(track: Track, name: str | None) -> Track:
    """The track with a run of this name as its oracle, or its only one of joint training."""
    found = [run for run in track.runs if (run.name == name if name else run.group == BOUND)]
    return replace(track, oracle=found[0]) if len(found) == 1 else track


class Drop(Struct, frozen=True, kw_only=True, gc=False):
    """The score of an earlier model minus that of the last one, in points: positive is worse.

    `data` are those of the curve, or these with more in their gallery. `drop` is None, and
    `undefined` says why, if either side was not measured.
    """

    curve: Curve
    data: str
    key: str
    against: Against
    baseline: Spread | None
    last: Spread | None
    drop: Spread | None
    interval: Interval | None = None
    undefined: str | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """A run that is compared, on one data set: a column of its matrices, with its rows."""

    track: Track
    run: Run
    column: int

    @cached_property
    def data(self) -> str:
        """What the column is called."""
        return self.run.data[self.column]

    @property
    def task(self) -> int | None:
        """The step of a task of the stream; None for data outside of it."""
        return self.column if self.column < len(self.run.tasks) else None

    @cached_property
    def is_guard(self) -> bool:
        """Whether these data are outside the stream, and must not get worse."""
        return self.task is None and self.data in self.run.guards

    @property
    def steps(self) -> list[int]:
        """The steps at which any seed was measured, START included, in order."""
        return self.run.steps_on.get(self.column, [])

    def row(self, seed: int, step: int) -> Row | None:
        """The row of the model of a step, by the number of the seed."""
        return self.run.rows.get((seed, step, self.column))

    def earlier(self, against: Against) -> int | None:
        """The step of the model that the last one is compared with; None without one."""
        if against == "learned":
            return self.task
        return self.run.of.base if against == "baseline" else self.run.of.before

    def pairs(self, against: Against = "baseline") -> list[tuple[Row, Row]]:
        """The rows of an earlier model and of the last one, of the seeds that have both."""
        step, last = self.earlier(against), self.run.of.last
        if step is None:
            return []
        found = ((self.row(n, step), self.row(n, last)) for n in range(len(self.run.seeds)))
        return [(before, now) for before, now in found if before and now]

    def has(self, key: str) -> bool:
        """Whether any model of the run has the metric there."""
        return key in self.run.own and bool(self.run.measured[key][self.column])

    def at(self, step: int, key: str) -> Spread | None:
        """The scores after a step; None if a seed lacks one."""
        return self.run.at(key, step, self.column)

    def before(self, key: str, against: Against = "baseline") -> Spread | None:
        """The scores of the earlier model; None if a seed lacks one."""
        step = self.earlier(against)
        return None if step is None else self.at(step, key)

    @property
    def last_rows(self) -> list[Row]:
        """The rows of the last model."""
        found = (self.row(n, self.run.of.last) for n in range(len(self.run.seeds)))
        return [row for row in found if row]

    @cached_property
    def images(self) -> int | None:
        """The fewest images that the last model was evaluated on; None if rows do not say."""
        found = (row.n_images for row in self.last_rows if row.n_images is not None)
        return min(found, default=None)

    @property
    def is_apart(self) -> bool:
        """Whether the baseline is another model than the one that the run started from."""
        for number in range(len(self.run.seeds)):
            base, start = self.row(number, self.run.of.base), self.row(number, START)
            if base is not None and (start is None or start.models != base.models):
                return True
        return False

    def drop(
        self, key: str, against: Against = "baseline", interval: Interval | None = None
    ) -> Drop:
        """The drop in one metric, with its interval if that is known."""
        before, last = self.before(key, against), self.at(self.run.of.last, key)
        lost = before.minus(last) if before is not None and last is not None else None
        return Drop(
            curve=self,
            data=self.data,
            key=key,
            against=against,
            baseline=before,
            last=last,
            drop=lost,
            interval=None if lost is None else interval,
            undefined=self._why_undefined(key, against) if lost is None else None,
        )

    def _why_undefined(self, key: str, against: Against) -> str:
        if self.run.of.unknown and against == "baseline":
            return self.run.of.unknown
        step, seeds = self.earlier(against), list(enumerate(self.run.seeds))
        no_baseline = [seed for n, seed in seeds if step is None or self.row(n, step) is None]
        no_last = [seed for n, seed in seeds if self.row(n, self.run.of.last) is None]
        if not no_baseline and not no_last:
            return f"{_WHO[against]} or its last model has no {key} on {self.data}"
        who = _WHO[against] if no_baseline else f"its last model (step {self.run.of.last})"
        lacking = ", ".join(map(str, no_baseline or no_last))
        return f"{who} was not evaluated on {self.data}" + (
            f", seed {lacking}" if len(seeds) > 1 else ""
        )


def tracks_of(
    rows: Iterable[Row],
    lineages: Mapping[str, Lineage],
    guards: Sequence[str] = (),
    baseline: Iterable[Row] = (),
) -> list[Track]:
    """The tracks of these rows, in order, whatever that of the rows is.

    `lineages` are those of the runs, and `guards` the patterns of --guard: data outside the stream
    that match none of them are not guards. `baseline` has rows of each run's. Raises UsageError for
    a pattern that matches nothing, and BadInput for a row that fits into no score matrix, for two
    in one cell, and for matrices that would fill the memory.
    """
    tracks = grouped([row for row in rows if row.since is None], track_key)
    names = [_outside_names(members) for members in tracks.values()]
    known = sorted({name for one in names for name in one.values()})
    for pattern in guards:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UsageError(
                f"--guard: {pattern!r} matches no data outside the stream "
                f"(known: {some_names(known) or 'none'})"
            )
    kept = frozenset(
        name for name in known if not guards or any(fnmatchcase(name, one) for one in guards)
    )
    bases = grouped(baseline, lambda row: (track_key(row), row.run))
    found = []
    for (key, members), of_track in zip(tracks.items(), names, strict=True):
        keys = tuple(dict.fromkeys(chain.from_iterable(_names(members))))
        if not keys:
            raise BadInput(f"{members[0].place} has no metric, nor has any row of its evaluator")
        for row in firsts(members, "data_part"):
            if row.gallery == "merged" and (not row.tasks or row.task_step != len(row.tasks) - 1):
                raise BadInput(
                    f"{row.place}: a merged gallery must list its tasks up to 'task_step'"
                )
        rows_of = grouped(members, attrgetter("run"))
        of_runs = [
            _run(rows_of[name], bases.get((key, name), []), lineages[name], of_track, kept, keys)
            for name in sorted(rows_of)
        ]
        on_stream = tuple(run for run in of_runs if run.galleries)
        others = tuple(run for run in of_runs if not run.galleries)
        evaluator, protocol, variant, split = key
        found.append(Track(evaluator, protocol, variant or None, split, keys, on_stream, others))
    return sorted(found, key=track_key)


def _outside_names(rows: Iterable[Row]) -> dict[Place, str]:
    """A name for all data outside the stream in these rows, by their task and tasks.

    Averages over different data sets share a name ("average of 2"); `tasks` keeps them apart.
    """
    every = firsts(rows, "data_part")
    known = dict.fromkeys((row.task, row.tasks) for row in every if is_outside(row))
    count = Counter(task for task, _ in known)
    return {
        (task, tasks): task if count[task] == 1 or len(tasks) < 2 else f"{task}: {', '.join(tasks)}"
        for task, tasks in known
    }


def _names(rows: Iterable[Row]) -> dict[tuple[str, ...], int]:
    """The metric keys of rows, in order. Few have others than the rows before them."""
    return {tuple(row.metrics): 0 for row in rows}


def _run(
    rows: Sequence[Row],
    base: Sequence[Row],
    of: Lineage,
    names: Mapping[Place, str],
    guards: frozenset[str],
    keys: Sequence[str],
) -> Run:
    inside = [row for row in rows if row.task_step is not None]
    trained = {step_of(row) for row in inside} - {START, BASE}
    steps = max(trained, default=START) + 1
    every = firsts(rows, "data_part")
    places = sorted({(row.task, row.tasks) for row in every if is_outside(row)})
    tasks = _task_names(inside, steps)
    columns = {place: len(tasks) + number for number, place in enumerate(places)}
    seeds = sorted({row.seed for row in rows})
    cells, on_merged = _cells_of(rows, base, seeds, len(tasks), columns)
    has = set(chain.from_iterable(_names(rows)))
    keys = [key for key in keys if key in has]
    most = max(map(step_of, firsts(rows, "model_part"))) + 1
    own = _filled(cells, keys, (len(seeds), most + 2, len(tasks) + len(columns)))
    merged = _filled(on_merged, keys, (len(seeds), most + 1, len(tasks))) if on_merged else {}
    final = max(inside or rows, key=step_of)  # the first step of a run has no buffer to replay yet
    outside = tuple(names[place] for place in places)
    return Run(
        name=final.run,
        method=final.method,
        buffer=_buffer_text(final),
        seeds=tuple(seeds),
        tasks=tasks,
        outside=outside,
        averages=frozenset(names[place] for place in places if len(place[1]) > 1),
        guards=guards.intersection(outside),
        steps=steps,
        final_only=steps > 1 and trained == {steps - 1},
        galleries=frozenset(row.gallery for row in inside),
        own=own,
        merged={key: found[:, 1:] for key, found in merged.items()},
        rows=cells,
        of=of,
    )


def _cells_of(
    rows: Sequence[Row],
    base: Sequence[Row],
    seeds: Sequence[int],
    tasks: int,
    columns: Mapping[Place, int],
) -> tuple[dict[Cell, Row], dict[Cell, Row]]:
    """The rows on own and on merged galleries by cell."""
    numbers = {seed: number for number, seed in enumerate(seeds)}
    own: dict[Cell, Row] = {}
    merged: dict[Cell, Row] = {}
    for row in rows:
        task, step = row.task_step, START if row.step is None else row.step
        column = columns[row.task, row.tasks] if task is None else task
        cell, cells = (numbers[row.seed], step, column), merged if row.gallery == "merged" else own
        first = cells.setdefault(cell, row)
        if first is not row:
            raise BadInput(
                f"{first.place} and {row.place} are both step {row.step}, task {cell[-1]} of "
                f"run {row.run!r}, seed {row.seed} ({row.gallery} gallery); remove one of them"
            )
    for row in base:
        task = row.task_step
        place = columns.get((row.task, row.tasks)) if task is None else task
        if row.seed in numbers and place is not None and (task is None or task < tasks):
            own[numbers[row.seed], BASE, place] = row
    return own, merged


def _filled(cells: Mapping[Cell, Row], keys: Iterable[str], shape: tuple[int, int, int]) -> Scores:
    """By metric, the scores by seed, step + 1 and column; at once for all rows with the same."""
    places = np.fromiter(chain.from_iterable(cells), np.int64, 3 * len(cells)).reshape(-1, 3)
    rows, keys = [*cells.values()], list(keys)
    if len(keys) * math.prod(shape) > MOST_CELLS:
        raise BadInput(f"run {rows[0].run!r} has score matrices of more than {MOST_CELLS} cells")
    found = {key: np.full(shape, np.nan) for key in keys}
    for names, members in grouped(range(len(rows)), lambda n: tuple(rows[n].metrics)).items():
        scores = chain.from_iterable(rows[n].metrics.values() for n in members)
        values = np.fromiter(scores, np.float64).reshape(len(members), len(names))
        seed, step, column = places[members].T
        for key, of_key in zip(names, values.T, strict=True):
            if key in found:
                found[key][seed, step + 1, column] = of_key
    return found


def _task_names(rows: Iterable[Row], steps: int) -> tuple[str, ...]:
    names: dict[int, str] = {}
    merged: tuple[str, ...] = ()
    for row in rows:
        if row.gallery == "own" and row.task_step is not None:
            names.setdefault(row.task_step, row.task)
        elif len(row.tasks) > len(merged):
            merged = row.tasks
    count = max([steps, len(merged), *(step + 1 for step in names)])
    known = dict(enumerate(merged)) | names
    return tuple(known.get(step, f"task {step}") for step in range(count))


def _buffer_text(row: Row) -> str | None:
    if not row.buffer:
        return None
    parts = (row.buffer.get(name) for name in ("policy", "size"))
    return " ".join(f"{part!s:.100}" for part in parts if part is not None) or "yes"


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by a key, in their order."""
    groups: defaultdict[K, list[T]] = defaultdict(list)
    for one in items:
        groups[key(one)].append(one)
    return groups


def curves_of(tracks: Iterable[Track]) -> list[Curve]:
    """Every run that is compared on every data set; starts and the baseline itself are not runs."""
    found = [
        Curve(track, run, column)
        for track in tracks
        for run in track.every
        if run.of.is_compared
        for column in run.steps_on
    ]
    return sorted(
        found, key=lambda one: (one.track.title, not one.is_guard, one.data, one.run.name)
    )


def earlier_tasks(curves: Iterable[Curve]) -> list[Curve]:
    """The curves on tasks that were learned before the last one and count in summary metrics."""
    return [
        one
        for one in curves
        if one.task is not None and one.task < one.run.of.last and one.task in one.run.counted
    ]


def require_complete(track: Track) -> None:
    """Raise BadInput, naming the missing cells, if a run of the track is incomplete."""
    if complaints := [phrase for run in track.runs for phrase in _missing(run)]:
        more = f"; and {len(complaints) - _SHOWN} more" if len(complaints) > _SHOWN else ""
        said = printable(f"{track.title}: {'; '.join(complaints[:_SHOWN])}")
        raise BadInput(
            f"{said}{more}; evaluate them, or use --allow-missing to leave the metrics that need "
            "them undefined"
        )


def _missing(run: Run) -> list[str]:
    """A phrase for each seed that lacks cells in any metric.

    Needed are the tasks up to each step, and of merged galleries the diagonal, and the last row,
    for bwt_ctp, if any other cell of it is there; of a run evaluated at its last step, only there.
    """
    last, tasks = run.steps - 1, len(run.tasks)
    if last < 0:
        return []
    scores = {  # (2, S, R, K) on own and merged galleries, by metric
        key: np.stack(
            [
                own[:, 1 : last + 2, :tasks],
                run.merged.get(key, np.full((len(own), last + 1, tasks), np.nan))[:, : last + 1],
            ]
        )
        for key, own in run.own.items()
    }
    measured = {key: ~np.isnan(one).all(axis=(0, 1, 2)) for key, one in scores.items()}
    of_any = np.any(list(measured.values()), axis=0)
    usual = np.stack([np.tri(last + 1, tasks, dtype=np.bool_), np.eye(last + 1, tasks) > 0])
    usual[[name not in run.galleries for name in ("own", "merged")]] = False
    usual[:, :last] &= not run.final_only
    holes = np.zeros((2, len(run.seeds), last + 1, tasks), dtype=np.bool_)
    for key, one in scores.items():
        needed = np.repeat(usual[:, None], len(run.seeds), axis=1)
        is_begun = ~np.isnan(one[1, :, last, :last]).all(axis=1)
        needed[1, is_begun, last, :last] = not run.final_only
        # A metric that no row has although the task has rows, such as acc5 of four classes.
        counts = measured[key] | ~of_any
        counts[list(run.unmeasured)] = False
        holes |= np.isnan(one) & needed & counts
    found = []
    for number, seed in enumerate(run.seeds):
        places = np.argwhere(holes[:, number]).tolist()
        if places:
            cells = ", ".join(
                f"(step {step}, {f'merged 0..{task}' if is_merged else run.tasks[task]})"
                for is_merged, step, task in places[:_SHOWN]
            )
            more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            found.append(f"run {run.name!r} seed {seed} lacks scores at {cells}{more}")
    return found


def score_notes(tracks: Sequence[Track]) -> tuple[str, ...]:
    """What is missing or unequal in the scores, one sentence each, without duplicates."""
    runs = [run for track in tracks for run in track.runs]
    unmeasured = dict.fromkeys(run.tasks[n] for run in runs for n in sorted(run.unmeasured))
    found = []
    if unmeasured:
        found.append(
            f"no last model was evaluated on {some_names(list(unmeasured))}: metrics over all "
            "tasks leave out what none has"
        )
    for track in tracks:
        longest = max((run.steps for run in track.runs), default=0)
        for run in track.runs:
            found += [
                f"{track.title}: {complaint}; metrics that need it are undefined"
                for complaint in _missing(run)
            ]
            if 0 < run.steps < longest:
                found.append(
                    f"run {run.name!r} has {run.steps} of {longest} steps: its numbers are not "
                    "comparable yet"
                )
    return tuple(dict.fromkeys(found))


def without_unmeasured(track: Track) -> Track:
    """The track, with the tasks that no run's last model was evaluated on marked as not counted.

    For --allow-missing: a task that one run alone lacks still leaves its metrics undefined.
    """
    learned = [run for run in track.runs if run.steps and "own" in run.galleries]
    last = {run.steps - 1 for run in learned}
    ends = (
        (run, column) for run in learned for _, step, column in run.rows if step == run.steps - 1
    )
    known = {column for run, column in ends if column < len(run.tasks)}
    tasks = range(max((run.steps for run in learned), default=0))
    lacking = frozenset(task for task in tasks if task not in known | last)
    if not lacking or not known:
        return track
    runs = (
        # Of those that it has learned, but the last one.
        replace(run, unmeasured=lacking & set(range(run.steps - 1)))
        for run in track.runs
    )
    return replace(track, runs=tuple(runs))
