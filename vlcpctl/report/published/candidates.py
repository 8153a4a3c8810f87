"""Everything in the rows of a report that a cell of a published table may select."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial

import numpy as np

from vlcpctl.core.rows import Row
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.published.selectors import BEFORE, CONFIG, LAST, Metric, Pairs
from vlcpctl.report.scores.collect import track_key
from vlcpctl.report.scores.drops import Drop
from vlcpctl.report.scores.runs import START, RunScores, Track, TransferScores
from vlcpctl.report.scores.settings import setting_of, setting_text
from vlcpctl.report.scores.summary import Spread, start_score, summarise

Value = Spread | str | None  # None: rows do not have it
Counts = Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Candidate:
    """One value that a selector may choose: the names it is selected by, and how it is computed.

    `step` and `since` are steps of the run, or START; `counts` has the numbers of images, texts,
    ... of the rows behind it. `seeds` are those of the values, in their order; empty: not known.
    """

    names: Mapping[str, str]
    measure: Callable[[], Value]
    step: int = START
    since: int | None = None
    counts: Callable[[], Counts] = field(default=dict)
    seeds: tuple[int, ...] = ()

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.names["run"]

    def name(self, field_: str) -> str:
        """The name that a selector of this field is matched with."""
        if field_ in {"step", "since"}:
            step = self.step if field_ == "step" else self.since
            return BEFORE if step == START else str(step)
        return self.names.get(field_, "")


class Choices:
    """The candidates of a report's rows, for any metric and selectors."""

    def __init__(
        self,
        tracks: Sequence[Track],
        drops: Sequence[Drop],
        rows: Iterable[Row],
        starts: Mapping[str, Sequence[str]],
    ) -> None:
        self._tracks, self._drops, self._starts = tracks, drops, starts
        self._rows: dict[str, list[Row]] = {}
        for row in rows:
            self._rows.setdefault(row.run, []).append(row)

    def of(self, metric: Metric, selectors: Pairs) -> list[Candidate]:
        """The candidates that every selector matches; their values may be undefined."""
        wanted = dict(selectors)
        found = [
            one
            for one in self._all(metric, wanted)
            if all(
                self._is_selected(one, field_, glob)
                for field_, glob in selectors
                if field_ not in {"step", "since"}
            )
        ]
        return [one for one in found if self._has_steps(one, wanted, metric)]

    @cached_property
    def runs(self) -> frozenset[str]:
        """The names of the runs, and of the models that they start from."""
        return frozenset(self._rows) | {name for names in self._starts.values() for name in names}

    def _all(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        if metric.kind == "summary":
            of_task = metric.takes("data") and "data" in wanted
            return (self._of_tasks if of_task else self._summaries)(metric, wanted)
        if metric.kind == "drop":
            return self._of_drops(metric, "data" in wanted)
        if metric.kind == "config":
            return self._settings(metric, wanted)
        if metric.kind in {"angle", "degrees"}:
            return self._angles(metric, wanted)
        if "data" in wanted:
            return self._on_data(metric.key, wanted)
        return self._means(metric.key, wanted)

    def _is_selected(self, one: Candidate, field_: str, glob: str) -> bool:
        if field_.startswith(f"{CONFIG}."):
            value = setting_of(self._config(one.run), field_.removeprefix(f"{CONFIG}."))
            return fnmatchcase(setting_text(value), glob)
        return fnmatchcase(one.name(field_), glob)

    def _has_steps(self, one: Candidate, wanted: Mapping[str, str], metric: Metric) -> bool:
        """Whether the step, by default the last one, and the earlier step are the wanted ones."""
        if metric.kind in {"summary", "drop"}:
            return True
        step = wanted.get("step", "" if metric.kind in {"angle", "degrees"} else LAST)
        if step == LAST and one.step != self.last(one.run):
            return False
        is_step = step in {"", LAST} or one.name("step") == step
        return is_step and ("since" not in wanted or one.name("since") == wanted["since"])

    def last(self, run: str) -> int:
        """The last step of a run; START if it was not trained on a stream."""
        return self._last.get(run, START)

    @cached_property
    def _last(self) -> dict[str, int]:
        return {run: max(map(_step, rows)) for run, rows in self._rows.items()}

    @cached_property
    def _of_last(self) -> dict[str, Row]:
        """A row of the last checkpoint of each run, with its settings if any such row has them."""
        found: dict[str, Row] = {}
        for run, rows in self._rows.items():
            of_last = [row for row in rows if _step(row) == self.last(run)]
            found[run] = next((row for row in of_last if row.config), of_last[0])
        return found

    def _config(self, run: str) -> Mapping[str, object] | None:
        row = self._of_last.get(run)
        return None if row is None else row.config

    def _names(self, track: Track, run: str, gallery: str, data: str = "") -> dict[str, str]:
        row = self._of_last.get(run)
        return {
            "evaluator": track.evaluator,
            "protocol": track.protocol,
            "split": track.split,
            "run": run,
            "method": "" if row is None else row.method,
            "gallery": gallery,
            "data": data,
        }

    def _summaries(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        definition = DEFINITIONS[metric.summary or ""]
        gallery = "merged" if definition.gallery == "merged" else "own"
        for track, run in self._runs_with(metric.key, wanted):
            yield Candidate(
                self._names(track, run.name, gallery),
                partial(_summary, run, metric.key, definition.name),
                self.last(run.name),
                counts=partial(self._all_counts, track, run.name, gallery),
                seeds=run.seeds,
            )
            if definition.name == "own_final":
                yield from self._mean_of_starts(track, run, metric.key)

    def _of_tasks(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        """A summary of each task of each run alone."""
        for track, run in self._runs_with(metric.key, wanted):
            for place, data in enumerate(run.tasks):
                yield Candidate(
                    self._names(track, run.name, "own", data),
                    partial(_of_task, run, metric, place),
                    self.last(run.name),
                    counts=partial(self._counts_on, track, run.name, data),
                    seeds=run.seeds,
                )

    def _runs_with(self, key: str, wanted: Mapping[str, str]) -> Iterator[tuple[Track, RunScores]]:
        for track in self._tracks:
            if key in track.keys:
                runs = (run for run in track.runs if self._may_be(run.name, wanted))
                yield from ((track, run) for run in runs)

    def _may_be(self, run: str, wanted: Mapping[str, str]) -> bool:
        """Whether the run, or a model that it starts from, is wanted: there may be many others."""
        names = (run, *self._starts.get(run, ()))
        return "run" not in wanted or any(fnmatchcase(name, wanted["run"]) for name in names)

    def _means(self, key: str, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        """The score over all tasks so far of each run: merged, or the mean over own galleries."""
        for track, run in self._runs_with(key, wanted):
            galleries: Iterable[str] = ("own", "merged")
            if "gallery" not in wanted:
                galleries = ("merged" if "merged" in run.galleries else "own",)
            for gallery in galleries:
                steps = _wanted_steps(wanted, self.last(run.name))
                yield from (self._mean(track, run, key, gallery, step) for step in steps)
            if "merged" not in run.galleries or "gallery" in wanted:
                yield from self._mean_of_starts(track, run, key)

    def _mean(self, track: Track, run: RunScores, key: str, gallery: str, step: int) -> Candidate:
        return Candidate(
            self._names(track, run.name, gallery),
            partial(_mean_at, run, key, gallery, step),
            step,
            counts=partial(self._all_counts, track, run.name, gallery),
            seeds=run.seeds,
        )

    def _mean_of_starts(self, track: Track, run: RunScores, key: str) -> Iterator[Candidate]:
        for name in self._other_starts(run.name):
            yield Candidate(
                self._names(track, name, "own"),
                partial(start_score, run, key),
                counts=partial(self._all_counts, track, run.name, "own"),
            )

    def _other_starts(self, run: str) -> list[str]:
        """The model that all seeds of a run start from, unless it is a run of its own."""
        names = self._starts.get(run, ())
        return [name for name in names if len(names) == 1 and name not in self._rows]

    def _on_data(self, key: str, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        """The scores of each run on each data set, in the stream and outside of it."""
        glob = wanted["data"]
        for track, run in self._runs_with(key, wanted):
            for place, data in enumerate(run.tasks):
                if fnmatchcase(data, glob):
                    of = (track, run.name, data, run.seeds)
                    yield from self._at_steps(of, wanted, partial(_task_at, run, key, place))
        for track in self._tracks:
            for transfer in track.transfers:
                is_wanted = key in transfer.scores and self._may_be(transfer.run, wanted)
                if is_wanted and fnmatchcase(transfer.task, glob):
                    of = (track, transfer.run, transfer.task, transfer.seeds)
                    yield from self._at_steps(of, wanted, partial(_transfer_at, transfer, key))

    def _at_steps(
        self,
        of: tuple[Track, str, str, tuple[int, ...]],  # with a run, data and the seeds of values
        wanted: Mapping[str, str],
        value: Callable[[int], Value],
    ) -> Iterator[Candidate]:
        track, run, data, seeds = of
        counts = partial(self._counts_on, track, run, data)
        for step in _wanted_steps(wanted, self.last(run)):
            names = self._names(track, run, "own", data)
            yield Candidate(names, partial(value, step), step, counts=counts, seeds=seeds)
        for name in self._other_starts(run):
            names = self._names(track, name, "own", data)
            yield Candidate(names, partial(value, START), START, counts=counts)

    def _counts_on(self, track: Track, run: str, data: str) -> Counts:
        rows = self._own_rows(track, run)
        return _counts([row for row in rows if data in (row.task, _long_name(row))])

    def _of_drops(self, metric: Metric, is_any: bool) -> Iterator[Candidate]:
        for drop in self._drops:
            if drop.key == metric.key and (is_any or drop.is_guard):
                yield Candidate(
                    self._names(drop.track, drop.run, "own", drop.data),
                    partial(_drop, drop),
                    self.last(drop.run),
                    seeds=drop.seeds,
                )

    def _angles(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        groups: dict[tuple[str, str, str, int, int], list[Row]] = {}
        for row in self._pairs:
            if self._may_be(row.run, wanted):
                assert row.since is not None
                since = START if row.since.step is None else row.since.step
                place = (row.run, row.task, row.split, _step(row), since)
                groups.setdefault(place, []).append(row)
        for (run, data, split, step, since), members in groups.items():
            members.sort(key=lambda row: row.seed)
            first = members[0]
            names = {"evaluator": first.evaluator, "protocol": first.protocol, "split": split}
            names |= {"run": run, "method": first.method, "gallery": "own", "data": data}
            yield Candidate(
                names,
                partial(_angle, members, metric),
                step,
                since,
                partial(_counts, members),
                tuple(row.seed for row in members),
            )

    @cached_property
    def _pairs(self) -> list[Row]:
        """The rows that compare two checkpoints."""
        return [row for rows in self._rows.values() for row in rows if row.since is not None]

    def _settings(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Candidate]:
        """A setting of each run: of all its rows, or where the evaluation is wanted, of those."""
        for run, rows in self._rows.items():
            if not self._may_be(run, wanted):
                continue
            known: dict[object, Candidate] = {}
            for row in rows:
                if row.config is not None and row.step is not None:
                    of_row = {"evaluator": row.evaluator, "protocol": row.protocol}
                    of_row |= {"split": row.split, "data": row.task}
                    names = {name: of_row[name] for name in of_row if name in wanted}
                    value = setting_of(row.config, metric.key)
                    names |= {"run": run, "method": row.method}
                    place = (row.step, setting_text(value), *names.values())
                    known[place] = Candidate(names, partial(_setting, value), row.step)
            yield from known.values()

    def _own_rows(self, track: Track, run: str) -> list[Row]:
        return [
            row
            for row in self._rows.get(run, ())
            if row.since is None and row.gallery == "own" and track_key(row) == track_key(track)
        ]

    def _all_counts(self, track: Track, run: str, gallery: str) -> Counts:
        """The counts of the merged gallery of all tasks, or the sums over the tasks."""
        if gallery == "merged":
            merged = [
                row
                for row in self._rows.get(run, ())
                if row.gallery == "merged" and track_key(row) == track_key(track)
            ]
            most = max((len(row.tasks) for row in merged), default=0)
            return _counts([row for row in merged if len(row.tasks) == most])
        by_task = {row.task_step: row for row in self._own_rows(track, run)}
        tasks = [row for task, row in by_task.items() if task is not None]
        shared = set.intersection(*(set(row.counts) for row in tasks)) if tasks else set()
        return {name: frozenset([sum(row.counts[name] for row in tasks)]) for name in shared}


def _step(row: Row) -> int:
    return START if row.step is None else row.step


def _long_name(row: Row) -> str:
    """The name of an average that shares a name with other averages."""
    return f"{row.task}: {', '.join(row.tasks)}"


def _wanted_steps(wanted: Mapping[str, str], last: int) -> list[int]:
    """The one step that is wanted of a run whose last step is given."""
    step = wanted.get("step", LAST)
    if step == LAST:
        return [last]
    return [START if step == BEFORE else int(step)]


def _summary(run: RunScores, key: str, name: str) -> Value:
    """A summary of a run; that of a model not trained on the stream is its score at the start."""
    if name == "own_final" and run.steps == 0:
        return start_score(run, key)
    return summarise(run, key, name)


def _of_task(run: RunScores, metric: Metric, task: int) -> Value:
    """A summary of one task: as if it were the first of two, and the last model the second's."""
    value, last = DEFINITIONS[metric.summary or ""].value, run.steps - 1
    if task >= last:
        return None
    found = []
    for one in run.scores.get(metric.key, ()):
        learned, final = one.own[task, task], one.own[last, task]
        found.append(value(np.array([[learned, np.nan], [final, final]])))
    return _spread(math.nan if one is None else one for one in found)


def _mean_at(run: RunScores, key: str, gallery: str, step: int) -> Value:
    """The score over tasks 0..step of the model after that step, or START; None without it."""
    if step == START:
        return start_score(run, key) if gallery == "own" else None
    if step == run.steps - 1:
        return summarise(run, key, f"{gallery}_final")
    if gallery == "own":
        return _spread(
            float(np.mean(one.own[step, : step + 1])) if step < run.steps else math.nan
            for one in run.scores.get(key, ())
        )
    return _cell(run, key, "merged", step, step)


def _task_at(run: RunScores, key: str, task: int, step: int) -> Value:
    if step == START:
        return _spread(float(one.start[task]) for one in run.scores.get(key, ()))
    return _cell(run, key, "own", step, task)


def _cell(run: RunScores, key: str, gallery: str, step: int, task: int) -> Value:
    if step >= run.steps:
        return None
    return _spread(float(one.of(gallery)[step, task]) for one in run.scores.get(key, ()))


def _transfer_at(transfer: TransferScores, key: str, step: int) -> Value:
    return _spread(scores.get(step, math.nan) for scores in transfer.scores[key])


def _spread(values: Iterable[float]) -> Spread | None:
    """The values of all seeds; None if a seed lacks its own."""
    found = tuple(values)
    return Spread(found) if found and not any(map(math.isnan, found)) else None


def _drop(drop: Drop) -> Value:
    return drop.drop


def _angle(rows: Sequence[Row], metric: Metric) -> Value:
    if metric.kind == "angle":
        return _spread(row.metrics.get(metric.key, math.nan) for row in rows)
    return _spread(_share(row, metric) for row in rows)


def _share(row: Row, metric: Metric) -> float:
    """Percent of the angles in (low, high] degrees, and those of 0 if low is 0."""
    counts = (row.degrees or {}).get(metric.key, ())
    total = sum(counts)
    return 100 * sum(counts[metric.low : metric.high]) / total if total else math.nan


def _setting(value: object) -> Value:
    """A setting as text: numbers of a table of settings have no common number of decimals."""
    return None if value is None else setting_text(value)


def _counts(rows: Iterable[Row]) -> Counts:
    found: dict[str, set[int]] = {}
    for row in rows:
        for name, count in row.counts.items():
            found.setdefault(name, set()).add(count)
    return {name: frozenset(counts) for name, counts in found.items()}
