"""How much worse than a baseline the last model of each run is, on every data set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.files.rows import Row
from vlcpctl.report.scores.baseline import Baseline
from vlcpctl.report.scores.collect import TrackKey, outside_names, track_key
from vlcpctl.report.scores.intervals import Interval
from vlcpctl.report.scores.joining import JoinedRows
from vlcpctl.report.scores.runs import START, Track, step_of
from vlcpctl.report.scores.summary import Spread, over_seeds

# A column of a run's matrix, or the task and tasks of data outside its stream.
Place = int | tuple[str, tuple[str, ...]]
# What the last model is compared with: the baseline; the model of the step before; on a task of the
# stream, the model that had just learned it; on an index, the model that built it, with its own
# queries, or the last model on an index that it has built again.
Against = Literal["baseline", "step before", "learned", "old index", "new index"]

FEWEST_IMAGES = 50  # of an earlier task that is judged by itself

_BySeed = dict[int, dict[int, Row]]  # by seed, and by step or START


@dataclass(frozen=True)
class Drop:
    """The score of an earlier model minus that of the last one, in points: positive is worse.

    The earlier model is the baseline, or that of an earlier step, as `against` says. `data` is a
    task of the run's stream, of this step, or data outside of it; only the latter are guards.
    `drop` is None, and `undefined` says why, if either side was not measured. It has a value for
    each of the `seeds`. `images` are those of the evaluation, if rows have their number.
    """

    track: Track
    run: str
    data: str
    is_guard: bool
    key: str
    baseline: Spread | None
    last: Spread | None
    drop: Spread | None
    interval: Interval | None = None
    undefined: str | None = None
    seeds: tuple[int, ...] = ()
    against: Against = "baseline"
    task: int | None = None
    images: int | None = None


@dataclass(frozen=True)
class SeedRows:
    """The rows of one seed on one data set: of the baseline, and by step (or START)."""

    seed: int
    baseline: Row | None
    steps: Mapping[int, Row]


@dataclass(frozen=True)
class Compared:
    """A run that is compared: the names of its baseline, or why it has none.

    `last` is its last step, and `before` the one before it; START: not trained on a stream.
    """

    name: str
    last: int
    before: int
    models: tuple[str, ...]
    unknown: str | None


@dataclass(frozen=True)
class Curve:
    """A run on one data set: the rows of every seed at the baseline and after each step.

    `task` is the step of a task of the stream, None for data outside of it.
    """

    track: Track
    run: Compared
    data: str
    is_guard: bool
    task: int | None
    seeds: tuple[SeedRows, ...]

    def pairs(self, against: Against = "baseline") -> list[tuple[Row, Row]]:
        """The rows of an earlier model and of the last one, of the seeds that have both."""
        found = ((self._before(one, against), one.steps.get(self.run.last)) for one in self.seeds)
        return [(before, last) for before, last in found if before and last]

    def _before(self, one: SeedRows, against: Against) -> Row | None:
        """The row of the model that the last one is compared with."""
        if against == "baseline":
            return one.baseline
        step = self.run.before if against == "step before" else self.task
        return None if step is None else one.steps.get(step)

    def before(self, key: str, against: Against = "baseline") -> Spread | None:
        """The scores of the earlier model, one for each seed; None if a seed lacks one."""
        return over_seeds(_score(self._before(one, against), key) for one in self.seeds)

    def is_of(self, data: Collection[str]) -> bool:
        """Whether the last model was evaluated on data with one of these content ids."""
        last = (one.steps.get(self.run.last) for one in self.seeds)
        return any(row.data in data for row in last if row)

    @cached_property
    def images(self) -> int | None:
        """The fewest images that the last model was evaluated on; None if rows do not say."""
        last = (one.steps.get(self.run.last) for one in self.seeds)
        return min(
            (row.counts["n_images"] for row in last if row and "n_images" in row.counts),
            default=None,
        )

    @property
    def steps(self) -> list[int]:
        """The steps at which any seed was measured, START included, in order."""
        return sorted({step for one in self.seeds for step in one.steps})

    @property
    def is_apart(self) -> bool:
        """Whether the baseline is another model than the one that the run started from."""
        for one in self.seeds:
            start = one.steps.get(START)
            if one.baseline is not None and (start is None or start.models != one.baseline.models):
                return True
        return False

    def at(self, step: int, key: str) -> Spread | None:
        """The scores after a step; None if a seed lacks one."""
        return over_seeds(_score(one.steps.get(step), key) for one in self.seeds)

    def drop(self, key: str, against: Against = "baseline") -> Drop:
        """The drop in one metric, without an interval."""
        before, last = self.before(key, against), self.at(self.run.last, key)
        drop, undefined = None, None
        seeds: tuple[int, ...] = ()
        if before is None or last is None:
            undefined = self._why_undefined(key, against)
        else:
            values = zip(before.values, last.values, strict=True)
            drop = Spread(tuple(one - other for one, other in values))
            seeds = tuple(one.seed for one in self.seeds)
        return Drop(
            track=self.track,
            run=self.run.name,
            data=self.data,
            is_guard=self.is_guard,
            key=key,
            baseline=before,
            last=last,
            drop=drop,
            undefined=undefined,
            seeds=seeds,
            against=against,
            task=self.task,
            images=self.images,
        )

    def _why_undefined(self, key: str, against: Against) -> str:
        if self.run.unknown and against == "baseline":
            return self.run.unknown
        no_baseline = [one.seed for one in self.seeds if self._before(one, against) is None]
        no_last = [one.seed for one in self.seeds if self.run.last not in one.steps]
        if not no_baseline and not no_last:
            return f"{_WHO[against]} or its last model has no {key} on {self.data}"
        who = _WHO[against] if no_baseline else f"its last model (step {self.run.last})"
        lacking = no_baseline or no_last
        seeds = f", seed {', '.join(map(str, lacking))}" if len(self.seeds) > 1 else ""
        return f"{who} was not evaluated on {self.data}{seeds}"


def curves(
    tracks: Sequence[Track],
    found: JoinedRows,
    rows: Iterable[Row],
    baseline: Baseline | None = None,
    guards: Sequence[str] = (),
) -> list[Curve]:
    """Every run of these rows on every data set; starts and the baseline itself are not runs.

    `rows` are those of `found` that are reported. `guards` are the patterns of --guard: data
    outside the stream that match none of them are not guards. Raises UsageError for a pattern that
    matches nothing, and BadInput if no run was evaluated on any data of the given baseline.
    """
    own = [row for row in rows if row.since is None and row.gallery == "own"]
    runs = {run.name: run for run in _compared(own, found, baseline)}
    data = _Data(tracks, own)
    data.check(guards)
    measured = _by_place(own)
    seeds_of: dict[tuple[TrackKey, str], set[int]] = {}
    for row in own:
        seeds_of.setdefault((track_key(row), row.run), set()).add(row.seed)
    at_start = measured if baseline is None else _by_place(found.baseline or [])
    curves_ = []
    for (track, name, place), seeds in measured.items():
        if name in runs:
            of_baseline = at_start.get((track, name, place), {})
            members = tuple(
                SeedRows(seed, of_baseline.get(seed, {}).get(START), seeds.get(seed, {}))
                for seed in sorted(seeds_of[track, name])
            )
            label = data.name(track, name, place)
            task = place if isinstance(place, int) else None
            is_guard = task is None and (not guards or _matches(label, guards))
            of_track = data.tracks[track]
            curves_.append(Curve(of_track, runs[name], label, is_guard, task, members))
    if baseline is not None and not any(one.pairs() for one in curves_):
        raise BadInput(
            f"--baseline: {baseline.text} and the last models of the runs have no data in common; "
            "evaluate it on theirs"
        )
    return sorted(
        curves_, key=lambda one: (one.track.title, not one.is_guard, one.data, one.run.name)
    )


def drops(
    found: Iterable[Curve],
    keys: Callable[[Track], Sequence[str]],
    intervals: Callable[[Curve, Against], Mapping[str, Interval]],
    against: Against = "baseline",
) -> list[Drop]:
    """A drop for every run, data set and metric key that the run has there."""
    drops_ = []
    for curve in found:
        has = set[str]().union(*(row.metrics for one in curve.seeds for row in one.steps.values()))
        ends = intervals(curve, against)
        drops_ += [
            replace(one, interval=ends[key]) if one.drop is not None and key in ends else one
            for key in keys(curve.track)
            if key in has
            for one in [curve.drop(key, against)]
        ]
    return drops_


def earlier_tasks(found: Sequence[Curve]) -> list[Curve]:
    """The curves on tasks that were learned before the last one and count in summary metrics."""
    without = {(id(one.track), run.name): run.without for one in found for run in one.track.runs}
    return [
        one
        for one in found
        if one.task is not None
        and one.task < one.run.last
        and one.task not in without.get((id(one.track), one.run.name), ())
    ]


_WHO: dict[Against, str] = {
    "baseline": "its baseline",
    "step before": "its model of the step before",
    "learned": "its model that had just learned it",
    "old index": "the model of the index",
    "new index": "the last model on its own index",
}


class _Data:
    """What the data of runs are called in a report."""

    def __init__(self, tracks: Sequence[Track], rows: Sequence[Row]) -> None:
        self.tracks = {track_key(track): track for track in tracks}
        self._tasks = {
            (track_key(track), run.name): run.tasks for track in tracks for run in track.runs
        }
        by_track: dict[TrackKey, list[Row]] = {}
        for row in rows:
            by_track.setdefault(track_key(row), []).append(row)
        self._outside = {track: outside_names(members) for track, members in by_track.items()}

    def name(self, track: TrackKey, run: str, place: Place) -> str:
        if isinstance(place, int):
            return self._tasks[track, run][place]
        return self._outside[track][place]

    def check(self, patterns: Iterable[str]) -> None:
        """Raise UsageError for a pattern of --guard that matches no data outside the stream."""
        known = sorted({name for names in self._outside.values() for name in names.values()})
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in known):
                raise UsageError(
                    f"--guard: {pattern!r} matches no data outside the stream "
                    f"(known: {some_names(known) or 'none'})"
                )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _compared(
    rows: Sequence[Row], found: JoinedRows, baseline: Baseline | None
) -> Iterable[Compared]:
    """The runs of the rows that are updates of a baseline.

    Not the baseline itself, nor, without one, models that other runs start from or untrained ones.
    """
    begun = {row.start for row in rows}
    by_run: dict[str, list[Row]] = {}
    for row in rows:
        by_run.setdefault(row.run, []).append(row)
    for name, members in sorted(by_run.items()):
        steps = sorted({START, *map(step_of, members)})
        last = steps[-1]
        models = {
            (row.seed, row.checkpoint)
            for row in members
            if row.step == (None if last == START else last)
        }
        if baseline is None:
            run = _from_start(name, members, steps, found.starts.get(name, ()))
            is_start = any(checkpoint in begun for _, checkpoint in models if checkpoint)
            if last != START and not (run.unknown and is_start):
                yield run
        elif any(baseline.of(seed) != checkpoint for seed, checkpoint in models):
            yield Compared(name, last, steps[-2:][0], (baseline.text,), None)


def _from_start(
    run: str, rows: Sequence[Row], steps: Sequence[int], models: tuple[str, ...]
) -> Compared:
    unknown = None
    if not any(row.step is None for row in rows):
        unknown = (
            "the model that it started from was not evaluated"
            if any(row.start for row in rows)
            else "it did not start from an imported model; use --baseline"
        )
    compared_with = models or (() if unknown else ("start",))
    return Compared(run, steps[-1], steps[-2:][0], compared_with, unknown)


def _by_place(rows: Iterable[Row]) -> dict[tuple[TrackKey, str, Place], _BySeed]:
    found: dict[tuple[TrackKey, str, Place], _BySeed] = {}
    for row in rows:
        place = (row.task, row.tasks) if row.task_step is None else row.task_step
        seeds = found.setdefault((track_key(row), row.run, place), {})
        seeds.setdefault(row.seed, {})[step_of(row)] = row
    return found


def _score(row: Row | None, key: str) -> float | None:
    return None if row is None else row.metrics.get(key)
