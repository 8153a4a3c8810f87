"""What the charts of a report show: chosen here, drawn by `charts` and by `figures`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vlcpctl.report.angles import SIDES as SIDE_NAMES
from vlcpctl.report.angles import AngleMeasure, SpatialTrack
from vlcpctl.report.charts import (
    SIDES,
    Floats,
    GridChart,
    Line,
    LineChart,
    RunGrid,
    RunStyle,
    score_axes,
    step_name,
    styles,
    ticks,
)
from vlcpctl.report.formats import on_one_line
from vlcpctl.report.report import Document
from vlcpctl.report.scores import GROUPS, START, Curve, Run, Track
from vlcpctl.report.tables import (
    MOST_SHOWN,
    ordered_runs,
    own_means,
    shown_steps,
    shown_tasks,
    step_label,
)

Styles = Mapping[str, RunStyle]

_MOST_GUARDS = 24  # charts of guards in a track
_MOST_CURVES = 600  # lines in all of these charts, beyond the first four
_KEEP = 0.999  # share of the angles that a histogram shows; the tables have the rest
_LEVEL = "Dashed line without markers"


def run_styles(document: Document) -> dict[str, RunStyle]:
    """The style of each run, the same in all charts; joint training, the upper bound, is grey."""
    runs = [run for track in document.tracks for run in track.runs]
    return styles(document.names, {run.name for run in runs if run.group == GROUPS[0]})


@dataclass(frozen=True)
class TrackCharts:
    """The charts of a track: guards, then the score over the steps, by step and task, per task.

    `note` says that some guards are not drawn, and is empty otherwise.
    """

    guards: list[LineChart]
    note: str
    curves: LineChart | None
    heat: GridChart | None
    bars: GridChart | None

    def __iter__(self) -> Iterator[LineChart | GridChart]:
        yield from self.guards
        yield from (one for one in (self.curves, self.heat, self.bars) if one is not None)


def track_charts(
    document: Document, track: Track, of: Styles, most: int = MOST_SHOWN
) -> TrackCharts:
    """The charts of a track in its main metric; matrices have at most `most` steps and tasks."""
    key = document.key(track)
    runs = ordered_runs(track, key)
    guards, note = data_charts(document.guards(track), key, of)
    curves = _curves(runs, key, of)
    own = [run for run in runs if run.steps and "own" in run.galleries]
    heat = _heat_maps([run for run in own if not run.final_only], key, of, most)
    return TrackCharts(guards, note, curves, heat, _bars(own, key, of))


def _curves(runs: Sequence[Run], key: str, of: Styles) -> LineChart | None:
    """The score after each step: on the merged gallery, or the mean over tasks."""
    is_merged = any("merged" in run.galleries for run in runs)
    what = "merged gallery of the tasks so far" if is_merged else "mean over the tasks so far"
    points = {run.name: [*_points(run, key, is_merged=is_merged)] for run in runs}
    lines = [
        _line(run.name, of[run.name], points[run.name], is_level=run.final_only)
        for run in runs
        if points[run.name]
    ]
    more = [_START_SAID] if any(one[0][0] == START for one in points.values() if one) else []
    more += (
        [f"{_LEVEL}: evaluated at the last step only."]
        if any(one.is_level for one in lines)
        else []
    )
    return _score_chart("curves", key, what, lines, more)


_START_SAID = "Start: the model before the first task, on the first task."


def _score_chart(
    name: str, key: str, what: str, lines: Sequence[Line], more: Sequence[str]
) -> LineChart | None:
    """A chart of a score after each step; None without lines. `more` are sentences about it."""
    if not lines:
        return None
    measure = on_one_line(key)
    title = f"{measure} after each step, {what}"
    band = ["Band: lowest to highest seed."] if any(one.has_band for one in lines) else []
    caption, titles = " ".join([f"{title}.", *band, *more]), ("after step", f"{measure}, {what}")
    return LineChart(name, title, caption, titles, tuple(lines), **score_axes(lines))


def _line(
    name: str, style: RunStyle, points: Sequence[tuple[float, ...]], *, is_level: bool
) -> Line:
    return Line(name, style, np.array(points, np.float64).T, is_level)


def _points(run: Run, key: str, *, is_merged: bool) -> Iterator[tuple[float, ...]]:
    """(step, mean, lowest seed, highest seed) of each step at which every seed was evaluated.

    The first step is START, on the first task, if the model before it was evaluated there: that is
    also its score on the merged gallery of the first task alone.
    """
    for step in range(0 if run.final_only or not run.steps else START, run.steps):
        if step == START:
            found = run.at(key, START, 0)
        else:
            found = run.on_merged(key, step) if is_merged else run.mean_at(key, step)
        if found is not None:
            yield step, found.mean, min(found.values), max(found.values)


def data_charts(curves: Sequence[Curve], key: str, of: Styles) -> tuple[list[LineChart], str]:
    """The scores after each step, a chart for each data set with a line for each run, and a note.

    Of many data sets, those with the largest drops are drawn; the note says so, and is empty
    otherwise.
    """
    by_data: dict[str, list[Curve]] = {}
    for one in curves:
        by_data.setdefault(one.data, []).append(one)

    def largest_drop(data: str) -> float:
        drops = (one.drop(key).drop for one in by_data[data])
        return max(-math.inf if drop is None else drop.mean for drop in drops)

    runs = max(map(len, by_data.values()), default=1)
    most = min(_MOST_GUARDS, max(4, _MOST_CURVES // runs))
    shown = sorted(sorted(by_data, key=lambda data: -largest_drop(data))[:most])
    charts = (_data_chart(data, by_data[data], of, key) for data in shown)
    note = f"Drawn: the {len(shown)} of {len(by_data)} guards with the largest drops."
    return [one for one in charts if one], note if len(by_data) > len(shown) else ""


def _data_chart(data: str, curves: Sequence[Curve], of: Styles, key: str) -> LineChart | None:
    """A baseline that is not the run's start is a level line."""
    lines: list[Line] = []
    levels: dict[str, float] = {}
    for one in curves:
        scores = [(step, found) for step in one.steps if (found := one.at(step, key)) is not None]
        points = [(step, at.mean, min(at.values), max(at.values)) for step, at in scores]
        if points:
            lines.append(_line(one.run.name, of[one.run.name], points, is_level=False))
        baseline = one.before(key)
        if baseline is not None and one.is_apart:
            levels.setdefault(f"baseline {' and '.join(one.run.of.models)}", baseline.mean)
    first = min(step for one in curves for step in one.steps)
    # No run: a baseline is not hidden with one.
    lines += [
        _line(name, RunStyle(None, None), [(first, at, at, at)], is_level=True)
        for name, at in levels.items()
    ]
    has_start = any(START in one.steps for one in curves)
    more = ["Start: the model before the first task."] if has_start else []
    more += [f"{_LEVEL}: the baseline."] if levels else []
    return _score_chart(f"guard-{data}", key, f"on {data}", lines, more)


def _heat_maps(runs: Sequence[Run], key: str, of: Styles, most: int) -> GridChart | None:
    """A step x task heat map per run, all on one scale; None without any.

    Of a long run, at most `most` steps and tasks are shown.
    """
    grids = []
    for run in runs:
        # The model before the first task is above, where that was evaluated.
        steps = [*([START] if run.has_start else []), *shown_steps(run, most)]
        tasks = shown_tasks(run, most)
        shown = own_means(run, key)[np.ix_([step + 1 for step in steps], tasks)]
        rows, columns = (tuple(map(step_name, numbers)) for numbers in (steps, tasks))
        grids += [RunGrid(run.name, of[run.name], rows, columns, shown)] if steps else []
    title = f"{on_one_line(key)} by step and task"
    caption = (
        f"{title}: a row for the model after each step, a column for each task; a stronger "
        "blue is a higher score."
    )
    return GridChart("heat-maps", title, caption, tuple(grids)) if grids else None


def _bars(runs: Sequence[Run], key: str, of: Styles) -> GridChart | None:
    """The last model's score on each task, with the score just after learning it."""
    longest = max(runs, key=lambda run: len(run.tasks), default=None)
    tasks = shown_tasks(longest) if longest else []
    if longest is None or not tasks:
        return None
    labels, grids = tuple(step_label(longest, task) for task in tasks), []
    for run in runs:
        own, last = own_means(run, key)[1:], run.steps - 1
        final = [own[last, task] if task <= last else math.nan for task in tasks]
        learned = [own[task, task] if task < last else math.nan for task in tasks]
        values = np.array([final, learned], np.float64)
        grids.append(RunGrid(run.name, of[run.name], ("last", "learned"), labels, values))
    name = on_one_line(key)
    caption = f"{name} on each task's own gallery. Bar: last model. Tick: just after learning it."
    return GridChart("tasks", f"{name} per task, last model", caption, tuple(grids), is_bars=True)


def histograms(space: SpatialTrack, measure: AngleMeasure) -> dict[str, list[LineChart]]:
    """Of each run, how often each angle occurs between each pair of steps, all on one scale."""
    keys = [f"{measure.name}_{side}" for side in measure.sides]
    shares = [(pair, [pair.share(key) for key in keys]) for pair in space.pairs]
    every = [share for _, sides in shares for share in sides if share.any()]
    if not every:
        return {}
    reach = max(1 + int(np.searchsorted(np.cumsum(one), _KEEP * one.sum())) for one in every)
    degrees, percents = ticks(0, reach, 4), ticks(0, max(float(one.max()) for one in every), 3)
    names = [SIDE_NAMES[side] for side in measure.sides]
    found: dict[str, list[LineChart]] = {}
    for pair, sides in shares:
        lines = tuple(
            Line(name, style, _outline(share, degrees[-1]))
            for name, style, share in zip(names, SIDES, sides, strict=True)
        )
        caption = (
            f"{pair.run}: percent of the angles in each degree, per pair of steps, "
            f"{measure.short} on {space.task}. Solid: {names[0]}. Dashed: {names[1]}."
        )
        about = f"{measure.name}-{pair.run}", pair.steps, caption, ("angle", "percent")
        axes = (0.0, degrees[-1]), degrees, percents, "{:g}\u00b0".format
        found.setdefault(pair.run, []).append(LineChart(*about, lines, *axes, (190, 90), 0))
    return found


def _outline(share: Floats, last: float) -> Floats:
    """The points of stairs from degree to degree, closed by a zero, above an area."""
    shown = np.append(share[: int(last)], 0.0)
    x = np.repeat(np.arange(len(shown)), 2)
    y = np.repeat(np.concatenate([[0.0], shown]), 2)[1:-1]
    return np.stack([x, y, np.zeros(len(x)), y])
