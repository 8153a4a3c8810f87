"""The charts of a report: this module selects the data and says what it is, charts/ draws it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlcpctl.report.angles import SIDES, AngleMeasure, SpatialTrack
from vlcpctl.report.cards.curves import has_several_tasks, term_panels
from vlcpctl.report.cards.runs import Cards
from vlcpctl.report.charts import (
    BarChart,
    BarPanel,
    HeatChart,
    HeatMap,
    HistogramChart,
    HistogramPanel,
    LineChart,
    Panel,
    Point,
    Range,
    RunStyle,
    ScatterChart,
    ScatterPoint,
    Series,
    scale_of,
    styles,
)
from vlcpctl.report.report import Document
from vlcpctl.report.scores import GROUPS, START, Curve, Run, Spread, Track
from vlcpctl.report.tables import (
    MOST_SHOWN,
    PLASTICITY,
    STABILITY,
    StabilityPoint,
    ordered_runs,
    own_means,
    shown_steps,
    shown_tasks,
    step_label,
)

Styles = Mapping[str, RunStyle]

_MOST_GUARDS = 24  # charts of guards in a track
_MOST_CURVES = 600  # lines in all of these charts, beyond the first four

_LEVEL = "Dashed line without markers"


def run_styles(document: Document) -> dict[str, RunStyle]:
    """The style of each run, the same in all charts; joint training, the upper bound, is grey."""
    runs = [run for track in document.tracks for run in track.runs]
    bounds = {run.name for run in runs if run.group == GROUPS[0]}
    return styles(list(document.names), bounds)


@dataclass(frozen=True)
class TrackCharts:
    """The charts of a track: guards, then the score over the steps, by step and task, per task.

    `guards_note` says that some guards are not drawn, and is empty otherwise.
    """

    guards: list[LineChart]
    guards_note: str
    curves: LineChart
    heat: HeatChart | None
    bars: BarChart | None

    def __iter__(self) -> Iterator[LineChart | HeatChart | BarChart]:
        yield from self.guards
        yield from [self.curves] if self.curves.drawn else []
        yield from (one for one in (self.heat, self.bars) if one is not None)


def track_charts(
    document: Document, track: Track, of: Styles, most: int = MOST_SHOWN
) -> TrackCharts:
    """The charts of a track in its main metric; matrices have at most `most` steps and tasks."""
    key = document.key(track)
    runs = ordered_runs(track, key)
    guards, note = data_charts(document.guards(track), key, of)
    is_merged = any("merged" in run.galleries for run in track.runs)
    curves = _curves(runs, key, "merged" if is_merged else "own", of)
    own = [run for run in runs if run.steps and "own" in run.galleries]
    if not own:
        return TrackCharts(guards, note, curves, None, None)
    heat = _heat_maps([run for run in own if not run.final_only], key, of, most)
    return TrackCharts(guards, note, curves, heat, _bars(own, key, of))


def _curves(runs: Sequence[Run], key: str, gallery: str, of: Styles) -> LineChart:
    """The score after each step: on the merged gallery, or the mean over tasks."""
    series = tuple(
        Series(run.name, of[run.name], tuple(_points(run, key, gallery)), run.final_only)
        for run in runs
    )
    what = (
        "merged gallery of the tasks so far"
        if gallery == "merged"
        else "mean over the tasks so far"
    )
    title = f"{key} after each step, {what}"
    caption = f"{title}.{_band(series)}"
    if any(point[0] == START for one in series for point in one.points):
        caption += " Start: the model before the first task, on the first task."
    if any(one.is_level and one.points for one in series):
        caption += f" {_LEVEL}: evaluated at the last step only."
    return LineChart("curves", title, f"{key}, {what}", caption, series)


def data_charts(curves: Sequence[Curve], key: str, of: Styles) -> tuple[list[LineChart], str]:
    """The scores after each step, a chart for each data set with a line for each run, and a note.

    A baseline that is not the run's start is a level line. Of many data sets, those with the
    largest drops are drawn; the note says so, and is empty otherwise.
    """
    by_data: dict[str, list[Curve]] = {}
    for one in curves:
        by_data.setdefault(one.data, []).append(one)

    def largest_drop(data: str) -> float:
        drops = (one.drop(key).drop for one in by_data[data])
        return max(-math.inf if drop is None else drop.mean for drop in drops)

    runs = max((len(members) for members in by_data.values()), default=1)
    most = min(_MOST_GUARDS, max(4, _MOST_CURVES // runs))
    shown = sorted(sorted(by_data, key=lambda data: -largest_drop(data))[:most])
    charts = [_data_chart(data, by_data[data], of, key) for data in shown]
    note = f"Drawn: the {len(shown)} of {len(by_data)} guards with the largest drops."
    return [chart for chart in charts if chart.drawn], note if len(by_data) > len(shown) else ""


def _data_chart(data: str, curves: Sequence[Curve], of: Styles, key: str) -> LineChart:
    series: list[Series] = []
    levels: dict[str, float] = {}
    for one in curves:
        scores = [(step, curve) for step in one.steps if (curve := one.at(step, key)) is not None]
        points = tuple((step, at.mean, min(at.values), max(at.values)) for step, at in scores)
        series.append(Series(one.run.name, of[one.run.name], points))
        baseline = one.before(key)
        if baseline is not None and one.is_apart:
            levels.setdefault(f"baseline {' and '.join(one.run.of.models)}", baseline.mean)
    first = min(step for one in curves for step in one.steps)
    series += [
        # A number that no run has: a baseline is not hidden with a run.
        Series(name, RunStyle(len(of) + place, None), ((first, at, at, at),), is_level=True)
        for place, (name, at) in enumerate(levels.items())
    ]
    caption = f"{key} on {data} after each step.{_band(series)}"
    if any(START in one.steps for one in curves):
        caption += " Start: the model before the first task."
    caption += f" {_LEVEL}: the baseline." if levels else ""
    name, scores_of = f"guard-{data}", f"{key} on {data}"
    return LineChart(name, f"{scores_of} after each step", scores_of, caption, tuple(series))


def _heat_maps(runs: Sequence[Run], key: str, of: Styles, most: int) -> HeatChart | None:
    """A step x task heat map per run, all on one scale; None without any.

    Of a long run, at most `most` steps and tasks are shown.
    """
    maps = []
    for run in runs:
        # The model before the first task is above, where that was evaluated.
        steps = [*([START] if run.has_start else []), *shown_steps(run, most)]
        tasks = shown_tasks(run, most)
        shown = own_means(run, key)[np.ix_([step + 1 for step in steps], tasks)]
        maps += (
            [HeatMap(run.name, of[run.name], tuple(steps), tuple(tasks), shown)] if steps else []
        )
    if not maps:
        return None
    highest = max(float(np.nanmax(own_means(run, key)[1:], initial=0.0)) for run in runs)
    title = f"{key} by step and task"
    caption = (
        f"{title}: a row for the model after each step, a column for each task; a stronger "
        "blue is a higher score."
    )
    return HeatChart("heat-maps", title, caption, tuple(maps), highest or 1.0)


def _bars(runs: Sequence[Run], key: str, of: Styles) -> BarChart | None:
    """The last model's score on each task, with the score just after learning it."""
    longest = max(runs, key=lambda run: len(run.tasks))
    tasks = shown_tasks(longest)
    if not tasks:
        return None
    panels = []
    for run in runs:
        own, last = own_means(run, key)[1:], run.steps - 1
        final = tuple(float(own[last, task]) if task <= last else math.nan for task in tasks)
        learned = tuple(float(own[task, task]) if task < last else math.nan for task in tasks)
        panels.append(BarPanel(run.name, of[run.name], final, learned))
    labels = tuple(step_label(longest, task) for task in tasks)
    caption = f"{key} on each task's own gallery. Bar: last model. Tick: just after learning it."
    return BarChart("tasks", f"{key} per task, last model", caption, labels, tuple(panels))


def stability_chart(
    points: Sequence[StabilityPoint], missing: Mapping[str, str], key: str, of: Styles
) -> ScatterChart | None:
    """Stability against plasticity of runs; None if fewer than two have both."""
    if len(points) < 2:
        return None
    formulas = (f"{text[0].upper()}{text[1:]}." for text in (PLASTICITY, STABILITY))
    caption = f"Each point is a run. {' '.join(formulas)}"
    caption += " Above 100, later tasks have improved earlier ones."
    if any(len(one.run.seeds) > 1 for one in points):
        caption += " Point: mean over seeds. Lines: lowest to highest seed."
    if missing:
        caption += (
            f" Without a point: {'; '.join(f'{run}, {why}' for run, why in missing.items())}."
        )
    titles = (f"plasticity: {key} just after learning", "stability: percentage retained")
    shown = tuple(
        ScatterPoint(one.run.name, of[one.run.name], _range(one.plasticity), _range(one.stability))
        for one in points
    )
    chart = ScatterChart(f"Stability against plasticity in {key}", caption, titles, shown)
    if not chart.unnamed:
        return chart
    note = f" {chart.unnamed} names had no room; the table has all runs."
    return replace(chart, caption=caption + note)


def _range(spread: Spread) -> Range:
    return min(spread.values), spread.mean, max(spread.values)


@dataclass(frozen=True)
class LossCharts:
    """The loss terms of all runs over the steps: a panel each, on one axis, and their runs."""

    caption: str
    panels: tuple[Panel, ...]
    runs: frozenset[str]
    x_title: str
    x_range: tuple[float, float]


def loss_charts(cards: Cards) -> LossCharts | None:
    """The loss terms that training logged; None without logs."""
    terms, left_out = term_panels(cards)
    lines = [line for one in terms for line in one.lines]
    if not lines:
        return None
    by_tasks = has_several_tasks(cards)
    xs = np.concatenate([line.x for line in lines])
    first = math.floor(xs.min())
    caption = "Each term of the loss as training logged it in metrics.jsonl"
    if by_tasks:
        caption += (
            ": a task spans one unit, from its first optimizer step to its last, and joint "
            "training spans all of its tasks"
        )
    caption += (
        f". At most {cards.most_rows} rows of each log and phase are drawn, evenly spaced, the "
        "first and the last among them; each is one batch, not an average. A line is broken where "
        "a checkpoint, rows or a finite value are missing; a resumed run continues its log "
        "without a gap."
    )
    if any(line.has_band for line in lines):
        caption += " Line: mean over seeds. Band: lowest to highest seed."
    if left_out:
        caption += f" {left_out} more terms are not drawn."
    return LossCharts(
        caption,
        tuple(terms),
        frozenset(line.run for line in lines),
        "task of the run" if by_tasks else "optimizer step",
        (first, max(math.ceil(xs.max()), first + 1)),
    )


def angle_histograms(
    spatial_track: SpatialTrack, measure: AngleMeasure, of: Styles
) -> list[HistogramChart]:
    """Histograms of a measure's angles per run, a panel per pair of steps, all on one scale."""
    one, other = (f"{measure.name}_{side}" for side in measure.sides)
    panels: dict[str, list[HistogramPanel]] = {}
    for pair in spatial_track.pairs:
        shares = (pair.share(one), pair.share(other))
        panels.setdefault(pair.run, []).append(HistogramPanel(pair.steps, shares))
    scale = scale_of([panel for members in panels.values() for panel in members])
    if scale is None:
        return []
    sides = (SIDES[measure.sides[0]], SIDES[measure.sides[1]])
    return [
        HistogramChart(
            name=f"{measure.name}-{run}",
            title=f"{run}: {measure.short} on {spatial_track.task}",
            run=run,
            style=of[run],
            sides=sides,
            panels=tuple(members),
            scale=scale,
        )
        for run, members in panels.items()
    ]


def _band(series: Sequence[Series]) -> str:
    return " Band: lowest to highest seed." if any(one.has_band for one in series) else ""


def _points(run: Run, key: str, gallery: str) -> Iterator[Point]:
    """(step, mean, lowest seed, highest seed) of each step at which every seed was evaluated.

    The first step is START, on the first task, if the model before it was evaluated there: that is
    also its score on the merged gallery of the first task alone.
    """
    own, merged = run.own.get(key), run.merged.get(key)
    for step in range(0 if run.final_only or not run.steps else START, run.steps):
        values: list[float] = []
        if own is not None and step == START:
            values = own[:, START + 1, 0].tolist()
        elif merged is not None and gallery == "merged":
            values = merged[:, step, step].tolist()
        elif own is not None and gallery == "own":
            values = [float(np.mean(seed[step + 1, : step + 1])) for seed in own]
        if values and not any(math.isnan(value) for value in values):
            yield step, float(np.mean(values)), min(values), max(values)
