"""Every score, drop, summary, setting and angle of a report, as facts that selectors choose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from glob import escape

import numpy as np

from vlcpctl.core.errors import nearest, some_names
from vlcpctl.files.rows import Row
from vlcpctl.metrics.chance import margin_of
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.facts.language import (
    BEFORE,
    CONFIG,
    LAST,
    NAMES,
    ROLL_OUT,
    STEPS,
    WORST,
    Metric,
    Pairs,
)
from vlcpctl.report.scores.collect import track_key
from vlcpctl.report.scores.drops import FEWEST_IMAGES, Against, Drop
from vlcpctl.report.scores.intervals import Interval
from vlcpctl.report.scores.joining import JoinedRows
from vlcpctl.report.scores.runs import START, RunScores, Track, TransferScores, step_of
from vlcpctl.report.scores.settings import setting_of, setting_text
from vlcpctl.report.scores.summary import (
    Spread,
    needs_second_task,
    over_seeds,
    start_score,
    summarise,
    why_undefined,
)
from vlcpctl.report.tables.angles import CheckpointPair, SpatialTrack

Value = Spread | str | None  # None: rows do not have it
Counts = Mapping[str, frozenset[int]]

NO_ROWS = JoinedRows([], {})
# Track, run, data, seeds, and the value after a step.
_OnData = tuple[Track, str, str, tuple[int, ...], Callable[[int], "Measured"]]
_LACKS_ROWS = "it lacks rows that the metric needs"
_NO_RANKS = "give --ranks with files of --save-ranks of the baseline and of the last checkpoint"
_LATER = "--undefined pass lets it pass until there is one"
FIRST = "it has learned a single task"
SMALL = f"no earlier task has {FEWEST_IMAGES} test images; bwt_gem judges small ones together"
_AGAINST: dict[str, Against] = {
    "step_drop": "step before",
    "index_loss": "old index",
    "reembed_gain": "new index",
}
_OTHER_RUNS = "use --run or @run=GLOB to select other runs"


@dataclass(frozen=True)
class Measured:
    """The value of a fact, or why it is undefined and what to do about it.

    `is_early` if it is undefined only because the run has not learned enough so far. `interval` is
    that of a drop or a mean of drops, in points lost.
    """

    value: Value
    undefined: str | None = None
    advice: str | None = None
    is_early: bool = False
    interval: Interval | None = None

    @property
    def number(self) -> float | None:
        """The value, or the mean over seeds; None for text."""
        return self.value.mean if isinstance(self.value, Spread) else None


@dataclass(frozen=True)
class Fact:
    """One row of the table: the names that it is selected by, and how its value is computed.

    `names` has all of NAMES that it has, `metric` is as verdicts name it. `step` and `since` are
    steps of the run, or START; `counts` has the numbers of images, texts, ... of the rows behind
    it. `seeds` are those of the values, in their order; empty: not known. `is_start` if it is of a
    model that runs are compared with, not of a run. `against` is the earlier model of a drop.
    """

    names: Mapping[str, str]
    metric: str
    measure: Callable[[], Measured]
    track: Track | None = None
    step: int = START
    since: int | None = None
    counts: Callable[[], Counts] = field(default=dict)
    seeds: tuple[int, ...] = ()
    is_start: bool = False
    against: Against | None = None

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.names["run"]

    @property
    def title(self) -> str | None:
        """The title of its track; None without one."""
        return None if self.track is None else self.track.title

    def name(self, field_: str) -> str:
        """The name that a selector of this field is matched with."""
        if field_ in {"step", "since"}:
            step = self.step if field_ == "step" else self.since
            return BEFORE if step == START else str(step)
        return self.names.get(field_, "")


@dataclass(frozen=True)
class Unmatched:
    """Why selectors choose nothing, and what to do about it."""

    undefined: str
    advice: str | None


class Facts:
    """The facts of a report. Scores stay in matrices: a fact is made once it is selected.

    `key` gives the main metric of a track, which counts where a metric names none; `joined` has the
    rows that the tracks were made of, and `untrained` the names of models not trained on a stream
    that the runs are compared with.
    """

    def __init__(
        self,
        tracks: Sequence[Track],
        key: Callable[[Track], str],
        drops: Sequence[Drop] = (),
        spatial_tracks: Sequence[SpatialTrack] = (),
        joined: JoinedRows = NO_ROWS,
        *,
        untrained: frozenset[str] = frozenset(),
    ) -> None:
        self._tracks, self._drops, self._spatial_tracks = tracks, drops, spatial_tracks
        self._joined, self._untrained = joined, untrained
        self._key = {id(track): key(track) for track in tracks}  # matrices cannot be hashed

    def select(self, metric: Metric, selectors: Pairs) -> list[Fact]:
        """The facts that every selector matches; their values may be undefined.

        Without step=, a metric key is that of the last model of each run that is compared.
        """
        found = self._all(metric, dict(selectors))
        return [one for one in found if all(self._is_selected(one, *pair) for pair in selectors)]

    def of_runs(self, metric: Metric, selectors: Pairs) -> list[Fact] | Unmatched:
        """The selected facts about runs, not about models that they start from, or why none are."""
        found = [one for one in self.select(metric, selectors) if not one.is_start]
        if found:
            return found
        wanted = dict(selectors)
        every = self._all(metric, dict.fromkeys(wanted, "*"))
        left = [one for one in every if not one.is_start]
        for field_ in NAMES if left else ():
            names = {one.name(field_) for one in left}
            left = [one for one in left if fnmatchcase(one.name(field_), wanted.get(field_, "*"))]
            if not left:
                return _no_match(field_, wanted[field_], names)
        if metric.kind != "drop" and "data" not in wanted:
            advice = f"use {metric.text}@data=GLOB for other data" if self._drops else None
            return Unmatched("no run has rows on tasks of its stream", metric.key and advice)
        if metric.name in ROLL_OUT:
            advice = "evaluate the guards with 'eval-retrieval --gallery-checkpoint'"
            return Unmatched("no run was evaluated on an index of an earlier model", advice)
        with_key = f" in {metric.key}" if metric.key else ""
        if "data" in wanted or not self._drops:
            return Unmatched(f"no trained run was evaluated on any data{with_key}", None)
        return Unmatched(
            f"no data outside the stream were evaluated{with_key}",
            "evaluate the run and its baseline on a guard set and add the rows, or select tasks of "
            f"the stream with {metric.text}@data=GLOB",
        )

    def _all(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The facts of a metric, at least those that match; some kinds depend on the fields."""
        if metric.kind == "summary":
            return (self._of_tasks if "data" in wanted else self._summaries)(metric, wanted)
        if metric.kind == "config":
            return self._settings(metric, wanted)
        if metric.kind in {"angle", "degrees"}:
            return self._angles(metric, wanted)
        if metric.kind == "key" and "step" in wanted:
            return (self._on_data if "data" in wanted else self._means)(metric, wanted)
        if metric.kind == "drop" or "data" in wanted:
            return self._of_drops(metric, wanted)
        return self._finals(metric, wanted)

    def _is_selected(self, one: Fact, field_: str, glob: str) -> bool:
        if field_ in STEPS:
            return one.name(field_) == glob or (glob == LAST and one.step == self._last(one.run))
        if field_.startswith(f"{CONFIG}."):
            value = setting_of(self._configs.get(one.run), field_.removeprefix(f"{CONFIG}."))
            return fnmatchcase(setting_text(value), glob)
        return fnmatchcase(one.name(field_), glob)

    @cached_property
    def _rows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._joined.rows:
            found.setdefault(row.run, []).append(row)
        return found

    @cached_property
    def _last_steps(self) -> dict[str, int]:
        return {run: max(map(step_of, rows)) for run, rows in self._rows.items()}

    def _last(self, run: str) -> int:
        """The last step of a run; START if it was not trained on a stream."""
        return self._last_steps.get(run, START)

    @cached_property
    def _configs(self) -> dict[str, Mapping[str, object] | None]:
        """The settings of the last checkpoint of each run, if any of its rows has them."""
        return {
            run: next((r.config for r in rows if r.config and step_of(r) == self._last(run)), None)
            for run, rows in self._rows.items()
        }

    @cached_property
    def _methods(self) -> dict[str, str]:
        every = (run for track in self._tracks for run in (*track.outside_runs, *track.runs))
        return {run.name: run.method for run in every}

    def _names(self, track: Track, run: str, gallery: str, data: str = "") -> dict[str, str]:
        return {
            "evaluator": track.evaluator,
            "protocol": track.protocol,
            "split": track.split,
            "run": run,
            "method": self._methods.get(run, ""),
            "gallery": gallery,
            "data": data,
        }

    def _may_be(self, run: str, wanted: Mapping[str, str]) -> bool:
        """Whether the run, or a model that it starts from, is wanted: there may be many others."""
        names = (run, *self._joined.starts.get(run, ()))
        return "run" not in wanted or any(fnmatchcase(name, wanted["run"]) for name in names)

    def _runs_with(
        self, metric: Metric, wanted: Mapping[str, str], gallery: str = "own"
    ) -> Iterator[tuple[Track, RunScores, str]]:
        """The runs of the tracks that have the metric key, and the key."""
        for track in self._tracks:
            key = metric.key or self._key[id(track)]
            if key in track.keys:
                for run in track.runs_with(gallery):
                    if self._may_be(run.name, wanted):
                        yield track, run, key

    def _fact(
        self,
        track: Track,
        run: RunScores,
        metric: str,
        measure: Callable[[], Measured],
        gallery: str = "own",
        data: str = "",
    ) -> Fact:
        """A fact about a run: about single data, or else about its tasks together."""
        on_data = partial(self._counts_on, track, run.name, data)
        return Fact(
            self._names(track, run.name, gallery, data),
            metric,
            measure,
            track,
            counts=on_data if data else partial(self._all_counts, track, run.name, gallery),
            seeds=run.seeds,
            is_start=run.steps == 0 and run.name in self._untrained,
        )

    def _summaries(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        name = metric.name or ""
        gallery = "merged" if DEFINITIONS[name].gallery == "merged" else "own"
        for track, run, key in self._runs_with(metric, wanted, DEFINITIONS[name].gallery):
            measure = partial(_over_tasks, run, key, name)
            if name == "bwt_gem":
                measure = partial(_mean_of_drops, measure, self._learned(track, run.name, key))
            yield self._fact(track, run, f"{name}.{key}", measure, gallery)
            if name == "own_final":
                if run.steps == 0:
                    yield self._start(track, run, key)
                yield from self._other_starts(track, run, key)

    def _finals(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The final score of each run over its tasks."""
        for track, run, key in self._runs_with(metric, wanted):
            for gallery in _galleries(run, wanted):
                measure = partial(_over_tasks, run, key, f"{gallery}_final")
                yield self._fact(track, run, f"{gallery}_final.{key}", measure, gallery)

    def _means(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The score of each run at a step, over all tasks until then."""
        for track, run, key in self._runs_with(metric, wanted):
            step = self._wanted(run.name, wanted)
            for gallery in _galleries(run, wanted):
                measure = partial(_mean_at, run, key, gallery, step)
                yield replace(self._fact(track, run, key, measure, gallery), step=step)
            if "merged" not in run.galleries or "gallery" in wanted:
                yield from self._other_starts(track, run, key)

    def _start(self, track: Track, run: RunScores, key: str) -> Fact:
        """The mean over tasks of the model before the first one."""
        found = self._fact(track, run, key, lambda: Measured(start_score(run, key)))
        return replace(found, is_start=True)

    def _other_starts(self, track: Track, run: RunScores, key: str) -> Iterator[Fact]:
        """The same, by the name of the model that all seeds start from, if it is no run itself."""
        for name in self._models_at_start(run.name):
            found = self._start(track, run, key)
            yield replace(found, names=self._names(track, name, "own"), seeds=())

    def _models_at_start(self, run: str) -> list[str]:
        names = self._joined.starts.get(run, ())
        return [name for name in names if len(names) == 1 and name not in self._rows]

    def _of_tasks(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """A summary of each task of each run alone."""
        for track, run, key in self._runs_with(metric, wanted):
            for place, data in enumerate(run.tasks):
                measure = partial(_of_task, run, metric.name or "", key, place)
                yield self._fact(track, run, metric.text, measure, data=data)

    def _on_data(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The score of each run at a step on each data set, in the stream and outside of it."""
        for track, run, data, seeds, value in self._data_sets(metric, wanted):
            if fnmatchcase(data, wanted["data"]):
                names, key = self._names(track, run, "own", data), metric.key or ""
                counts, step = partial(self._counts_on, track, run, data), self._wanted(run, wanted)
                at = partial(value, step)
                yield Fact(names, key, at, track, step, counts=counts, seeds=seeds)
                for name in self._models_at_start(run):
                    names = self._names(track, name, "own", data)
                    yield Fact(names, key, partial(value, START), track, counts=counts)

    def _data_sets(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[_OnData]:
        for track, run, key in self._runs_with(metric, wanted):
            for place, data in enumerate(run.tasks):
                yield track, run.name, data, run.seeds, partial(_task_at, run, key, place)
        for track in self._tracks:
            for one in track.transfers:
                if metric.key in one.scores and self._may_be(one.run, wanted):
                    value = partial(_transfer_at, one, metric.key)
                    yield track, one.run, one.task, one.seeds, value

    def _wanted(self, run: str, wanted: Mapping[str, str]) -> int:
        step = wanted["step"]
        if step == LAST:
            return self._last(run)
        return START if step == BEFORE else int(step)

    def _of_drops(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """Runs on data outside the stream, or with data= any, compared with an earlier model."""
        if metric.name == "worst_week":
            yield from self._of_weeks(metric)
            return
        against = _AGAINST.get(metric.name or "", "baseline")
        for drop in self._drops:
            if drop.against == against and (drop.is_guard or "data" in wanted):
                yield from self._of_drop(drop, metric)

    def _of_weeks(self, metric: Metric) -> Iterator[Fact]:
        """Every run on its earlier tasks that are large enough, compared with both models.

        A run without any has one fact, which is undefined.
        """
        found = [one for one in self._drops if one.task is not None and one.against != "baseline"]
        large = [one for one in found if one.images is None or one.images >= FEWEST_IMAGES]
        for drop in large:
            yield from self._of_drop(drop, metric)
        judged = {(id(one.track), one.run) for one in large}
        small = {(id(one.track), one.run) for one in found} - judged
        for track, run, key in self._runs_with(metric, {}):
            place = id(track), run.name
            if run.steps and place not in judged:
                why = SMALL if place in small else FIRST
                measure = partial(Measured, None, why, _LATER, is_early=True)
                yield self._fact(track, run, f"{metric.name}.{key}", measure)

    def _of_drop(self, drop: Drop, metric: Metric) -> Iterator[Fact]:
        key = metric.key or self._key[id(drop.track)]
        if drop.key == key:
            yield Fact(
                self._names(drop.track, drop.run, "own", drop.data),
                f"{metric.name}.{key}" if metric.name else key,
                partial(_of_drop, drop, metric.name),
                drop.track,
                seeds=drop.seeds,
                against=drop.against,
            )

    def _learned(self, track: Track, run: str, key: str) -> list[Drop]:
        """What a run lost of each earlier task since it had learned it."""
        return [
            one
            for one in self._drops
            if one.against == "learned" and one.run == run and one.key == key and one.track is track
        ]

    def _angles(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        for track in self._spatial_tracks:
            for pair in track.pairs:
                if self._may_be(pair.run, wanted):
                    first = pair.rows[0]
                    names = {"evaluator": first.evaluator, "protocol": first.protocol}
                    names |= {"split": track.split, "run": pair.run, "method": first.method}
                    yield Fact(
                        names | {"gallery": "own", "data": track.task},
                        metric.text,
                        partial(_angle, pair, metric),
                        step=step_of(first),
                        since=START if first.since is None else step_of(first.since),
                        counts=partial(_counts, pair.rows),
                        seeds=tuple(row.seed for row in pair.rows),
                    )

    def _settings(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """A setting of each run: of all its rows, or where the evaluation is wanted, of those."""
        for run, rows in self._rows.items():
            if not self._may_be(run, wanted):
                continue
            known: dict[object, Fact] = {}
            for row in rows:
                if row.config is not None and row.step is not None:
                    of_row = {"evaluator": row.evaluator, "protocol": row.protocol}
                    of_row |= {"split": row.split, "data": row.task}
                    names = {name: of_row[name] for name in of_row if name in wanted}
                    value = setting_of(row.config, metric.key or "")
                    # As text: numbers of a table of settings have no common number of decimals.
                    text = None if value is None else setting_text(value)
                    place = (row.step, text, row.method, *names.values())
                    known[place] = Fact(
                        names | {"run": run, "method": row.method},
                        metric.text,
                        partial(Measured, text),
                        step=row.step,
                    )
            yield from known.values()

    def _rows_of(self, track: Track, run: str, gallery: str) -> list[Row]:
        return [
            row
            for row in self._rows.get(run, ())
            if row.since is None and row.gallery == gallery and track_key(row) == track_key(track)
        ]

    def _counts_on(self, track: Track, run: str, data: str) -> Counts:
        rows = self._rows_of(track, run, "own")
        # Averages that share a name have a longer one.
        return _counts(
            row for row in rows if data in (row.task, f"{row.task}: {', '.join(row.tasks)}")
        )

    def _all_counts(self, track: Track, run: str, gallery: str) -> Counts:
        """The counts of the merged gallery of all tasks, or the sums over the tasks."""
        rows = self._rows_of(track, run, gallery)
        if gallery == "merged":
            most = max((len(row.tasks) for row in rows), default=0)
            return _counts(row for row in rows if len(row.tasks) == most)
        tasks = [row for task, row in {r.task_step: r for r in rows}.items() if task is not None]
        shared = set.intersection(*(set(row.counts) for row in tasks)) if tasks else set()
        return {name: frozenset([sum(row.counts[name] for row in tasks)]) for name in shared}


def _galleries(run: RunScores, wanted: Mapping[str, str]) -> list[str]:
    """Where a score over tasks is looked up: merged if there is such a gallery, unless selected."""
    found: list[str] = [name for name in ("own", "merged") if name in run.galleries]
    if "gallery" in wanted:
        return found
    return ["merged" if "merged" in found else "own"]


def _over_tasks(run: RunScores, key: str, name: str) -> Measured:
    """A summary of a run."""
    spread = summarise(run, key, name)
    if spread is not None:
        return Measured(spread)
    why = why_undefined(run, DEFINITIONS[name])
    if why and needs_second_task(run, DEFINITIONS[name]):
        advice = "--undefined pass lets it pass until a second task is learned"
        return Measured(None, why, advice, is_early=True)
    return Measured(None, why or _LACKS_ROWS, _OTHER_RUNS)


def _mean_of_drops(measure: Callable[[], Measured], drops: Sequence[Drop]) -> Measured:
    """A summary that is the mean of these drops, with the interval of the points lost."""
    found = measure()
    intervals = [one.interval for one in drops if one.interval is not None]
    if found.number is None or not intervals or len(intervals) < len(drops):
        return found
    error = math.sqrt(math.fsum(one.error**2 for one in intervals)) / len(intervals)
    ends = (-found.number - margin_of(error), -found.number + margin_of(error))
    samples = sum(one.samples for one in intervals)
    return replace(found, interval=Interval(*ends, error, samples))


def _of_task(run: RunScores, name: str, key: str, task: int) -> Measured:
    """A summary of one task: as if it were the first of two, and the last model the second's."""
    value, last = DEFINITIONS[name].value, run.steps - 1
    if task >= last:
        return Measured(None)
    found = []
    for one in run.scores.get(key, ()):
        learned, final = one.own[task, task], one.own[last, task]
        found.append(value(np.array([[learned, np.nan], [final, final]])))
    return Measured(over_seeds(found))


def _mean_at(run: RunScores, key: str, gallery: str, step: int) -> Measured:
    """The score over tasks 0..step of the model after that step, or START."""
    if step == START:
        return Measured(start_score(run, key) if gallery == "own" else None)
    if step == run.steps - 1:
        return Measured(summarise(run, key, f"{gallery}_final"))
    if step >= run.steps:
        return Measured(None)
    return Measured(
        over_seeds(
            float(
                np.mean(one.own[step, : step + 1]) if gallery == "own" else one.merged[step, step]
            )
            for one in run.scores.get(key, ())
        )
    )


def _task_at(run: RunScores, key: str, task: int, step: int) -> Measured:
    if step >= run.steps:
        return Measured(None)
    of_seeds = run.scores.get(key, ())
    return Measured(
        over_seeds(
            float(one.start[task] if step == START else one.own[step, task]) for one in of_seeds
        )
    )


def _transfer_at(transfer: TransferScores, key: str, step: int) -> Measured:
    return Measured(over_seeds(scores.get(step) for scores in transfer.scores[key]))


def _of_drop(drop: Drop, name: str | None) -> Measured:
    """The drop, an end of its interval, or without a name the score of the last model."""
    if name is None:
        return Measured(drop.last) if drop.last else _lacks_rows(drop, needs_baseline=False)
    if drop.drop is None:
        return _lacks_rows(drop, needs_baseline=True)
    if name in {"drop", *WORST, *ROLL_OUT}:
        return Measured(drop.drop, interval=drop.interval)
    if drop.interval is None:
        return Measured(None, "it has no interval", _NO_RANKS)
    return Measured(Spread((drop.interval.low if name == "drop_low" else drop.interval.high,)))


def _lacks_rows(drop: Drop, *, needs_baseline: bool) -> Measured:
    """What is lacking: rows of the baseline, of the last checkpoint, or of both."""
    lacks_baseline = needs_baseline and drop.baseline is None
    if needs_baseline and drop.against != "baseline":
        return Measured(None, drop.undefined, "evaluate every checkpoint on these data")
    models = (("baseline", lacks_baseline), ("last checkpoint", drop.last is None))
    lacking = [name for name, lacks in models if lacks]
    known = drop.undefined if needs_baseline else None
    if not lacking:
        return Measured(None, known or _LACKS_ROWS)
    its, the = (" and ".join(f"{word} {name}" for name in lacking) for word in ("its", "the"))
    advice = f"evaluate {the} on these data and add the rows"
    if lacks_baseline:
        advice += ", or name another model with --baseline"
    return Measured(None, known or f"it lacks rows of {its} on {drop.data}", advice)


def _angle(pair: CheckpointPair, metric: Metric) -> Measured:
    """A metric of angles, or percent of them in (low, high] degrees, and those of 0 if low is 0."""
    if metric.kind == "angle":
        return Measured(over_seeds(row.metrics.get(metric.key or "") for row in pair.rows))
    shares = []
    for row in pair.rows:
        counts = (row.degrees or {}).get(metric.key or "", ())
        total = sum(counts)
        shares.append(100 * sum(counts[metric.low : metric.high]) / total if total else None)
    return Measured(over_seeds(shares))


def _counts(rows: Iterable[Row]) -> Counts:
    found: dict[str, set[int]] = {}
    for row in rows:
        for name, count in row.counts.items():
            found.setdefault(name, set()).add(count)
    return {name: frozenset(counts) for name, counts in found.items()}


def _no_match(field_: str, glob: str, known: set[str]) -> Unmatched:
    names = sorted(known)
    # A name with a [ is not matched by itself.
    near = escape(glob).replace(",", "[,]") if glob in known else nearest(glob, names)
    known_names = f"known: {some_names(names)}"
    advice = f"did you mean {near!r}? ({known_names})" if near is not None else known_names
    return Unmatched(f"no {field_} matches {glob!r}", advice)
