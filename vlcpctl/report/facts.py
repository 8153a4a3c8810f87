"""The facts of a report: every score, summary, drop, angle and setting, chosen by one language.

`METRIC[@FIELD=GLOB,...]` selects facts: `--fail-if` compares them, `--best` chooses by them, a cell
of a published table shows one, and facts.csv has them all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

import numpy as np

from vlcpctl.core.errors import UsageError, some_names, unknown_name
from vlcpctl.files.rows import Row
from vlcpctl.metrics.angles import WHOLE
from vlcpctl.metrics.chance import margin_of
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.angles import SpatialTrack
from vlcpctl.report.comparable import setting_of, setting_text
from vlcpctl.report.intervals import Interval
from vlcpctl.report.scores import (
    BASE,
    FEWEST_IMAGES,
    START,
    Against,
    Drop,
    Run,
    Spread,
    Track,
    over_seeds,
    step_of,
)

Kind = Literal["summary", "key", "drop", "angle", "degrees", "config"]
Pairs = tuple[tuple[str, str], ...]  # (field, glob)
Value = Spread | str | None  # None: rows do not have it

NAMES = ("evaluator", "protocol", "split", "run", "method", "gallery", "data")
STEPS = ("step", "since")
# Largest drops, of which a condition is about one for each run.
WORST = ("worst_drop", "step_drop", "worst_week")
ROLL_OUT = ("index_loss", "reembed_gain")  # what keeping an index loses, against two others
DROPS = ("drop", *WORST, "drop_low", "drop_high", *ROLL_OUT)
LAST, BEFORE, _CONFIG = "last", "start", "config."

_ANGLE = r"(?:(?:sam|ram)_(?:image|text)|imav_(?:i2t|t2i))"
_ANGLE_KEY = re.compile(rf"{_ANGLE}_(mean|\d+_\d+)")
_DEGREES = re.compile(rf"degrees\.({_ANGLE})\.(\d+)\.(\d+)")
# Sets of characters as `fnmatch` reads them, and any other characters but a comma.
_PART = re.compile(r"(?:\[!?\]?[^\]]*\]|[^,])+")
_OF_MODEL = ("evaluator", "protocol", "split", "run", "method")
# Which fields narrow the choice of a metric; config.NAME does for all.
_TAKES: dict[Kind, tuple[str, ...]] = {
    "summary": (*_OF_MODEL, "gallery"),
    "key": (*_OF_MODEL, "gallery", "data", "step"),
    "drop": (*_OF_MODEL, "data"),
    "angle": ("evaluator", "split", "run", "method", "data", *STEPS),
    "degrees": ("evaluator", "split", "run", "method", "data", *STEPS),
    "config": (*_OF_MODEL, "data", "step"),
}
# Summaries that are means over tasks of a number of each task: with data=, that of one task.
_OF_ONE_TASK = ("bwt_gem", "fr_dha")
FIRST = "it has learned a single task"
SMALL = f"no earlier task has {FEWEST_IMAGES} test images; bwt_gem judges small ones together"
_AGAINST: dict[str, Against] = {
    "step_drop": "step before",
    "index_loss": "old index",
    "reembed_gain": "new index",
}
_LACKS_ROWS = "it lacks rows that the metric needs"


@dataclass(frozen=True)
class Metric:
    """A metric: a summary or drop in a metric key, a key, a share of angles or a setting.

    `name` is that of a summary or drop. `key` is the metric key (None: the main one of each track),
    the measure of the angles or the name of the setting; `low` and `high` bound the angles, in
    degrees.
    """

    kind: Kind
    key: str | None
    name: str = ""
    low: int = 0
    high: int = WHOLE

    @property
    def text(self) -> str:
        """The metric as it was given: such as "bwt_gem.t2i_r1" or "rm"."""
        return ".".join(part for part in (self.name, self.key) if part)

    def takes(self, field: str) -> bool:
        """Whether a selector of this field narrows the choice of it."""
        is_of_task = field == "data" and self.name in _OF_ONE_TASK
        return field.startswith(_CONFIG) or is_of_task or field in _TAKES[self.kind]


def parse(text: str, where: str, keys: Collection[str]) -> tuple[Metric, Pairs]:
    """The metric and selectors of METRIC[@FIELD=GLOB,...]; `keys` are the metric keys of the rows.

    Names may contain any character: the selectors start behind the longest known metric, and a
    comma or bracket in a pattern is written [,] or [[]. Raises UsageError, which names `where`, for
    another form, an unknown metric or field, or one that the metric does not take.

    >>> metric, selectors = parse("drop.acc1@data=a:b*,run=x", "--fail-if", ["rm", "acc1"])
    >>> metric.name, metric.key, selectors
    ('drop', 'acc1', (('data', 'a:b*'), ('run', 'x')))
    """
    ends = [len(text), *(place for place in range(len(text) - 1, -1, -1) if text[place] == "@")]
    known = ((end, _known(text[:end], keys)) for end in ends)
    end, metric = next((one for one in known if one[1] is not None), (0, None))
    if metric is None:
        name, _, key = text.partition("@")[0].partition(".")
        unknown = unknown_name("metric", name, [*DEFINITIONS, *DROPS, *keys])
        if name in DEFINITIONS or name in DROPS:
            unknown = unknown_name("metric key", key, keys)
        raise UsageError(f"{where}: {unknown}")
    selectors = parse_selectors(text[end + 1 :], where) if end < len(text) else ()
    for field, _ in selectors:
        if not metric.takes(field):
            raise UsageError(f"{where}: {text[:end]} takes no {field}=")
    return metric, selectors


def _known(text: str, keys: Collection[str]) -> Metric | None:
    """The metric of this text, if there is such a one."""
    name, _, key = text.partition(".")
    if text in keys:
        return Metric("key", text)
    if name in DEFINITIONS or name in DROPS:
        kind: Kind = "summary" if name in DEFINITIONS else "drop"
        return Metric(kind, key or None, name) if key in keys or text == name else None
    if _ANGLE_KEY.fullmatch(text):
        return Metric("angle", text)
    if text.startswith(_CONFIG) and key and "@" not in key:
        return Metric("config", key)
    found = _DEGREES.fullmatch(text)
    low, high = (int(found[2]), int(found[3])) if found else (0, 0)
    return Metric("degrees", found[1], "", low, high) if found and low < high <= WHOLE else None


def parse_selectors(text: str, where: str) -> Pairs:
    """(field, glob) pairs of FIELD=GLOB,...; a comma inside brackets is part of a glob.

    Raises UsageError, which names `where`, for another form, an unknown field, a field that is
    given twice, or a step that is not a number, "last" or "start".
    """
    found: dict[str, str] = {}
    for part in _PART.findall(text) or [""]:
        field, equals, glob = part.partition("=")
        if not equals:
            raise UsageError(f"{where}: {part!r} is not FIELD=GLOB; write a comma in a name as [,]")
        if field not in (*NAMES, *STEPS) and not field.startswith(_CONFIG):
            raise UsageError(f"{where}: {unknown_name('field', field, (*NAMES, *STEPS))}")
        if field in found:
            raise UsageError(f"{where}: {field}= is given twice")
        words = (LAST, BEFORE) if field == "step" else (BEFORE,)
        if field in STEPS and glob not in words and not re.fullmatch("[0-9]{1,9}", glob):
            raise UsageError(
                f"{where}: {field}={glob} is not {', '.join(words)} or a step counted from 0"
            )
        found[field] = glob
    return tuple(found.items())


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number with the names that it is selected by; `metric` is as verdicts name it.

    `step` and `since` are steps of the run, or START. If `value` is None, `undefined` says why;
    `is_early` if only because the run has not learned enough so far.
    `interval` is that of a drop or a mean of drops, in points lost. `seeds` are those of the
    values; empty: not known. `is_start` if it is of a model that runs are compared with, not of a
    run. `against` is the earlier model of a drop.
    """

    metric: str
    value: Value
    evaluator: str = ""
    protocol: str = ""
    split: str = ""
    run: str
    method: str = ""
    gallery: str = ""
    data: str = ""
    step: int = START
    since: int | None = None
    track: Track | None = None
    seeds: tuple[int, ...] = ()
    undefined: str | None = None
    is_early: bool = False
    interval: Interval | None = None
    is_start: bool = False
    against: Against | None = None

    @property
    def title(self) -> str | None:
        """The title of its track; None without one."""
        return None if self.track is None else self.track.title

    @property
    def number(self) -> float | None:
        """The value, or the mean over seeds; None for text."""
        return self.value.mean if isinstance(self.value, Spread) else None

    def name(self, field: str) -> str:
        """The name that a selector of this field is matched with."""
        found = getattr(self, field)
        return BEFORE if field in STEPS and found == START else str(found)


class Facts:
    """The facts of a report. Scores stay in matrices: a fact is made when it is selected.

    `key` gives the main metric of a track, which counts where a metric names none, and `rows` are
    those that the tracks were made of.
    """

    def __init__(
        self,
        tracks: Sequence[Track],
        key: Callable[[Track], str],
        rows: Sequence[Row],
        drops: Sequence[Drop] = (),
        spatial: Sequence[SpatialTrack] = (),
    ) -> None:
        self._tracks, self._key, self._drops, self._spatial = tracks, key, drops, spatial
        self._every_row = rows

    @cached_property
    def _last(self) -> dict[str, int]:
        """The last step of each run that has any row."""
        found: dict[str, int] = {}
        for row in self._every_row:
            found[row.run] = max(step_of(row), found.get(row.run, START))
        return found

    @cached_property
    def _rows(self) -> dict[str, list[Row]]:
        """The rows of each run that record its settings, one for each checkpoint and evaluation."""
        found: dict[str, dict[object, Row]] = {}
        for row in self._every_row:
            if row.config is not None and row.step is not None:
                about = row.step, row.evaluator, row.protocol, row.split, row.task, id(row.config)
                found.setdefault(row.run, {}).setdefault(about, row)
        return {run: list(rows.values()) for run, rows in found.items()}

    def select(self, metric: Metric, selectors: Pairs) -> list[Fact]:
        """The facts that every selector matches; their values may be undefined.

        Without step=, a metric key is that of the last model of each run that is compared.
        """
        found = self._all(metric, dict(selectors))
        return [one for one in found if all(self._is_selected(one, *pair) for pair in selectors)]

    def of_runs(self, metric: Metric, selectors: Pairs) -> list[Fact] | str:
        """The selected facts about runs, not about models that they start from, or why none are."""
        found = [one for one in self.select(metric, selectors) if not one.is_start]
        if found:
            return found
        every = self._all(metric, {field: "*" for field, _ in selectors})
        left = [one for one in every if not one.is_start]
        for field, glob in selectors if left else ():
            names = sorted({one.name(field) for one in left})
            left = [one for one in left if fnmatchcase(one.name(field), glob)]
            if not left:
                return f"no {field} matches {glob!r} (known: {some_names(names)})"
        has_data = any(field == "data" for field, _ in selectors)
        if metric.name in ROLL_OUT:
            return "no run was evaluated on an index of an earlier model (--gallery-checkpoint)"
        if metric.kind != "drop" and not has_data:
            return "no run has rows on tasks of its stream"
        where = "any data" if has_data or not self._drops else "data outside the stream"
        with_key = f" in {metric.key}" if metric.key else ""
        return f"no trained run was evaluated on {where}{with_key}"

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

    def _is_selected(self, one: Fact, field: str, glob: str) -> bool:
        if field in STEPS:
            return one.name(field) == glob or (
                glob == LAST and one.step == self._last.get(one.run, START)
            )
        if field.startswith(_CONFIG):
            rows = self._rows.get(one.run, ())
            last = (row.config for row in rows if row.step == self._last.get(one.run, START))
            setting = setting_of(next(last, None), field.removeprefix(_CONFIG))
            return fnmatchcase(setting_text(setting), glob)
        return fnmatchcase(one.name(field), glob)

    def _runs(
        self, metric: Metric, wanted: Mapping[str, str], gallery: str = "own"
    ) -> Iterator[tuple[Track, Run, str]]:
        """The runs of the tracks that have the metric key, and the key."""
        for track in self._tracks:
            key = metric.key or self._key(track)
            if key in track.keys:
                every = track.every if gallery == "any" else track.runs_with(gallery)
                for run in every:
                    if fnmatchcase(run.name, wanted.get("run", "*")):
                        yield track, run, key

    def _fact(self, track: Track, of: Run, metric: str, value: Value, **more: Any) -> Fact:
        """A fact about a run, on own galleries and over its tasks unless `more` says otherwise."""
        return Fact(
            metric=metric,
            value=value,
            track=track,
            **{
                "run": of.name,
                "evaluator": track.evaluator,
                "protocol": track.protocol,
                "split": track.split,
                "method": of.method,
                "gallery": "own",
                "seeds": of.seeds,
                "undefined": _LACKS_ROWS if value is None else None,
                # An untrained model of --baseline.
                "is_start": of.steps == 0 and of.of.base == BASE and not of.of.is_compared,
                **more,
            },
        )

    def _summaries(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        one = DEFINITIONS[metric.name]
        gallery = "merged" if one.gallery == "merged" else "own"
        for track, run, key in self._runs(metric, wanted, one.gallery):
            found = self._summary(track, run, key, one.name, gallery)
            yield self._with_interval(found, key) if one.name == "bwt_gem" else found

    def _summary(self, track: Track, run: Run, key: str, name: str, gallery: str) -> Fact:
        value, text, one = run.summary(key, name), f"{name}.{key}", DEFINITIONS[name]
        if value is not None:
            return self._fact(track, run, text, value, gallery=gallery)
        why = run.why_undefined(one)
        is_early = why is not None and run.needs_second_task(one)
        why = why or _LACKS_ROWS
        return self._fact(track, run, text, None, gallery=gallery, undefined=why, is_early=is_early)

    def _with_interval(self, one: Fact, key: str) -> Fact:
        """`bwt_gem` is the mean of what was lost since each earlier task was learned."""
        of = "learned", one.run, key
        drops = [
            drop
            for drop in self._drops
            if (drop.against, drop.curve.run.name, drop.key) == of and drop.curve.track is one.track
        ]
        known = [drop.interval for drop in drops if drop.interval is not None]
        if one.number is None or not known or len(known) < len(drops):
            return one
        error = math.sqrt(math.fsum(each.error**2 for each in known)) / len(known)
        ends = (-one.number - margin_of(error), -one.number + margin_of(error))
        return replace(one, interval=Interval(*ends, error, sum(each.samples for each in known)))

    def _finals(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The final score of each run over its tasks."""
        for track, run, key in self._runs(metric, wanted):
            for gallery in _galleries(run, wanted):
                yield self._summary(track, run, key, f"{gallery}_final", gallery)

    def _means(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The score of each run at a step, over all tasks until then."""
        for track, run, key in self._runs(metric, wanted):
            step = self._step(run, wanted)
            for gallery in _galleries(run, wanted):
                value = None
                if gallery == "merged":
                    is_known = START < step < run.steps
                    value = run.on_merged(key, step) if is_known else None
                elif step == run.steps - 1 != START:
                    value = run.summary(key, "own_final")
                elif step < run.steps:
                    value = run.mean_at(key, step)
                yield self._fact(track, run, key, value, gallery=gallery, step=step)

    def _of_tasks(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """A summary of each task alone: as if it were the first of two, and the last the second."""
        value = DEFINITIONS[metric.name].value
        for track, run, key in self._runs(metric, wanted):
            own, last = run.own.get(key), run.steps - 1
            for task, data in enumerate(run.tasks):
                found: list[float | None] = []
                if own is not None and task < last:
                    pairs = own[:, [task + 1, last + 1], task].tolist()
                    cells = (np.array([[a, math.nan], [b, b]]) for a, b in pairs)
                    found = [value(cell) for cell in cells]
                yield self._fact(track, run, metric.text, over_seeds(found), data=data)

    def _on_data(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """The score of each run at a step on each data set, in the stream and outside of it."""
        for track, run, key in self._runs(metric, wanted, "any"):
            step = self._step(run, wanted)
            for column, data in enumerate(run.data if key in run.own else ()):
                is_task = column < len(run.tasks)
                if not fnmatchcase(data, wanted["data"]) or not (is_task or run.outside):
                    continue
                value = run.at(key, step, column)
                yield self._fact(track, run, key, value, data=data, step=step)

    def _step(self, run: Run, wanted: Mapping[str, str]) -> int:
        step = wanted["step"]
        if step in {LAST, "*"}:
            return self._last[run.name]
        return START if step == BEFORE else int(step)

    def _of_drops(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """Runs on data outside the stream, or with data= any, compared with an earlier model."""
        if metric.name == "worst_week":
            yield from self._of_weeks(metric)
            return
        against = _AGAINST.get(metric.name, "baseline")
        for drop in self._drops:
            if drop.against == against and (drop.curve.is_guard or "data" in wanted):
                yield from self._of_drop(drop, metric)

    def _of_weeks(self, metric: Metric) -> Iterator[Fact]:
        """Every run on its earlier tasks that are large enough, compared with both models.

        A run without any has one fact, which is undefined.
        """
        found = [one for one in self._drops if one.curve.task is not None]
        found = [one for one in found if one.against != "baseline"]
        large = [one for one in found if (one.curve.images or FEWEST_IMAGES) >= FEWEST_IMAGES]
        for drop in large:
            yield from self._of_drop(drop, metric)
        judged = {(id(one.curve.track), one.curve.run.name) for one in large}
        small = {(id(one.curve.track), one.curve.run.name) for one in found} - judged
        for track, run, key in self._runs(metric, {}):
            place = id(track), run.name
            if run.steps and place not in judged:
                yield self._fact(
                    track,
                    run,
                    f"{metric.name}.{key}",
                    None,
                    undefined=SMALL if place in small else FIRST,
                    is_early=True,
                )

    def _of_drop(self, drop: Drop, metric: Metric) -> Iterator[Fact]:
        """The drop, an end of its interval, or without a name the score of the last model."""
        key = metric.key or self._key(drop.curve.track)
        if drop.key != key:
            return
        value, interval = drop.last, None
        why: str | None = "it lacks rows of its last model"
        if metric.name:
            value, why = drop.drop, drop.undefined
            ends = drop.interval
            if metric.name not in {"drop_low", "drop_high"}:
                interval = ends
            elif value is not None:
                is_low = metric.name == "drop_low"
                value = Spread((ends.low if is_low else ends.high,)) if ends else None
                why = "it has no interval (--ranks)"
        text = f"{metric.name}.{key}" if metric.name else key
        more: dict[str, Any] = {"data": drop.data, "interval": interval, "against": drop.against}
        more |= {"undefined": why if value is None else None, "is_start": False}
        yield self._fact(drop.curve.track, drop.curve.run, text, value, **more)

    def _angles(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        for track in self._spatial:
            for pair in track.pairs:
                first, key = pair.rows[0], metric.key or ""
                if metric.kind == "angle":
                    values = [row.metrics.get(key) for row in pair.rows]
                else:  # percent of them in (low, high] degrees, and those of 0 if low is 0
                    every = [(row.degrees or {}).get(key, ()) for row in pair.rows]
                    counts = [(sum(one[metric.low : metric.high]), sum(one)) for one in every]
                    values = [100 * some / total if total else None for some, total in counts]
                if fnmatchcase(pair.run, wanted.get("run", "*")):
                    yield Fact(
                        metric=metric.text,
                        value=over_seeds(values),
                        evaluator=first.evaluator,
                        protocol=first.protocol,
                        split=track.split,
                        run=pair.run,
                        method=first.method,
                        gallery="own",
                        data=track.task,
                        step=step_of(first),
                        since=START if first.since is None else step_of(first.since),
                        seeds=tuple(row.seed for row in pair.rows),
                    )

    def _settings(self, metric: Metric, wanted: Mapping[str, str]) -> Iterator[Fact]:
        """A setting of each run: of all its rows, or where the evaluation is wanted, of those."""
        for run, rows in self._rows.items():
            known: dict[object, Fact] = {}
            for row in rows if fnmatchcase(run, wanted.get("run", "*")) else ():
                of_row = {"evaluator": row.evaluator, "protocol": row.protocol}
                of_row |= {"split": row.split, "data": row.task}
                names: dict[str, Any] = {name: of_row[name] for name in of_row if name in wanted}
                value = setting_of(row.config, metric.key or "")
                # As text: numbers of a table of settings have no common number of decimals.
                text = None if value is None else setting_text(value)
                names |= {"run": run, "method": row.method, "step": step_of(row)}
                one = Fact(metric=metric.text, value=text, **names)
                known[text, *names.values()] = one
            yield from known.values()


def _galleries(run: Run, wanted: Mapping[str, str]) -> list[str]:
    """Where a score over tasks is looked up: merged if there is such a gallery, unless selected."""
    found: list[str] = [name for name in ("own", "merged") if name in run.galleries]
    return found if "gallery" in wanted else ["merged" if "merged" in found else "own"]
