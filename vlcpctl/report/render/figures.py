"""The charts of a report: this module selects the data, charts/ draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.bars import BarChart, BarPanel
from vlcpctl.report.charts.heat_maps import HeatChart, HeatMap
from vlcpctl.report.charts.histograms import HistogramChart, HistogramPanel, scale_of
from vlcpctl.report.charts.lines import LineChart, Point, Series
from vlcpctl.report.charts.style import RunStyle, styles
from vlcpctl.report.document import Document
from vlcpctl.report.scores.drops import Curve
from vlcpctl.report.scores.runs import START, RunScores, Track
from vlcpctl.report.tables.angles import SIDES, AngleMeasure, SpatialTrack
from vlcpctl.report.tables.comparison import GROUPS, ordered_runs
from vlcpctl.report.tables.matrices import (
    MOST_SHOWN,
    has_start,
    own_means,
    shown_steps,
    shown_tasks,
    start_means,
    step_label,
)

Styles = Mapping[str, RunStyle]

_MOST_GUARDS = 24  # charts of guards in a track
_MOST_CURVES = 600  # lines in all of these charts, beyond the first four

LEVEL = "Dashed line without markers"


def run_styles(document: Document) -> dict[str, RunStyle]:
    """The style of each run, the same in all charts; joint training, the upper bound, is grey."""
    names: list[str] = []
    bounds: set[str] = set()
    for track in document.tracks:
        runs = ordered_runs(track, document.key(track))
        names += [run.name for run in runs]
        bounds |= {run.name for run in runs if run.group == GROUPS[0]}
    # Runs without rows on their stream, and models that others start from.
    names += sorted({one.run.name for one in document.curves})
    names += sorted({one.run for track in document.tracks for one in track.transfers})
    names += sorted({pair.run for space in document.spatial_tracks for pair in space.pairs})
    names += [one.name for one in document.cards.runs] if document.cards else []
    return styles(names, bounds)


def curve_gallery(document: Document, track: Track) -> str:
    """The gallery of the scores over the steps: merged where there are such rows, else own."""
    has_merged = any("merged" in run.galleries for run in track.runs)
    return "merged" if has_merged and "merged" in document.galleries else "own"


def curves(runs: Sequence[RunScores], key: str, gallery: str, of: Styles) -> LineChart:
    """The score after each step: on the merged gallery, or the mean over tasks."""
    series = tuple(
        Series(run.name, of[run.name], _points(run, key, gallery), run.final_only) for run in runs
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
        caption += f" {LEVEL}: evaluated at the last step only."
    return LineChart("curves", title, f"{key}, {what}", caption, series)


def guards(curves: Sequence[Curve], key: str, of: Styles) -> tuple[list[LineChart], str]:
    """The scores after each step, a chart for each guard with a line for each run, and a note.

    A baseline that is not the run's start is a level line. Of many guards, those with the largest
    drops are drawn; the note says so, and is empty otherwise.
    """
    by_data: dict[str, list[Curve]] = {}
    for one in curves:
        by_data.setdefault(one.data, []).append(one)
    drops = {data: max(map(_drop(key), members)) for data, members in by_data.items()}
    runs = max((len(members) for members in by_data.values()), default=1)
    most = min(_MOST_GUARDS, max(4, _MOST_CURVES // runs))
    shown = sorted(sorted(by_data, key=lambda data: -drops[data])[:most])
    charts = [_guard(data, by_data[data], of, key) for data in shown]
    note = f"Drawn: the {len(shown)} of {len(by_data)} guards with the largest drops."
    found = [chart for chart in charts if any(one.points for one in chart.series)]
    return found, note if len(by_data) > len(shown) else ""


def _drop(key: str) -> Callable[[Curve], float]:
    def of(curve: Curve) -> float:
        drop = curve.drop(key).drop
        return -math.inf if drop is None else drop.mean

    return of


def _guard(data: str, curves: Sequence[Curve], of: Styles, key: str) -> LineChart:
    series = [Series(one.run.name, of[one.run.name], _guard_points(one, key)) for one in curves]
    levels: dict[str, float] = {}
    first = min(step for one in curves for step in one.steps)
    for one in curves:
        baseline = one.baseline(key)
        if baseline is not None and one.is_apart:
            name = f"baseline {' and '.join(one.run.models)}"
            levels.setdefault(name, baseline.mean)
    series += [
        # A number that no run has: a baseline is not hidden with a run.
        Series(name, RunStyle(len(of) + place, None), ((first, at, at, at),), is_level=True)
        for place, (name, at) in enumerate(levels.items())
    ]
    caption = f"{key} on {data} after each step.{_band(series)}"
    if any(START in one.steps for one in curves):
        caption += " Start: the model before the first task."
    caption += f" {LEVEL}: the baseline." if levels else ""
    name, scores = f"guard-{data}", f"{key} on {data}"
    return LineChart(name, f"{scores} after each step", scores, caption, tuple(series))


def _guard_points(curve: Curve, key: str) -> tuple[Point, ...]:
    scores = [(step, curve.at(step, key)) for step in curve.steps]
    return tuple(
        (step, one.mean, min(one.values), max(one.values))
        for step, one in scores
        if one is not None
    )


def heat_maps(
    runs: Sequence[RunScores], key: str, galleries: tuple[str, ...], most: int = MOST_SHOWN
) -> HeatChart | None:
    """A step x task heat map per run with several steps, all on one scale; None without any.

    Of a long run, at most `most` steps and tasks are shown.
    """
    shown = [run for run in runs if not run.final_only and run.steps and "own" in run.galleries]
    maps = tuple(one for run in shown if (one := _heat_map(run, key, galleries, most)).steps)
    if not maps:
        return None
    highest = max(float(np.nanmax(own_means(run, key), initial=0.0)) for run in shown)
    title = f"{key} by step and task"
    caption = (
        f"{title}: a row for the model after each step, a column for each task; a stronger "
        "blue is a higher score."
    )
    return HeatChart("heat-maps", title, caption, maps, highest or 1.0)


def bars(runs: Sequence[RunScores], key: str, of: Styles) -> BarChart | None:
    """The last model's score on each task, with the score just after learning it."""
    shown = [run for run in runs if run.steps and "own" in run.galleries]
    if not shown:
        return None
    longest = max(shown, key=lambda run: len(run.tasks))
    places = shown_tasks(longest)
    if not places:
        return None
    panels = tuple(_panel(run, key, of[run.name], places) for run in shown)
    labels = tuple(step_label(longest, task) for task in places)
    caption = f"{key} on each task's own gallery. Bar: last model. Tick: just after learning it."
    return BarChart("tasks", f"{key} per task, last model", caption, labels, panels)


def angle_histograms(spatial_track: SpatialTrack, measure: AngleMeasure) -> list[HistogramChart]:
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
            caption=f"{run}: percent of the angles in each degree, per pair of steps. "
            f"Solid: {sides[0]}. Dashed: {sides[1]}.",
            run=run,
            sides=sides,
            panels=tuple(members),
            scale=scale,
        )
        for run, members in panels.items()
    ]


def _band(series: Sequence[Series]) -> str:
    return " Band: lowest to highest seed." if any(one.has_band for one in series) else ""


def _points(run: RunScores, key: str, gallery: str) -> tuple[Point, ...]:
    """(step, mean, lowest seed, highest seed) of each step at which every seed was evaluated.

    The first step is START, on the first task, if the model before it was evaluated there: that is
    also its score on the merged gallery of the first task alone.
    """
    points = []
    of_seeds = run.scores.get(key, ())
    for step in range(0 if run.final_only or not run.steps else START, run.steps):
        if step == START:
            values = [float(scores.start[0]) for scores in of_seeds]
        else:
            values = [_after(scores.of(gallery), step, gallery) for scores in of_seeds]
        if values and not any(math.isnan(value) for value in values):
            points.append((step, float(np.mean(values)), min(values), max(values)))
    return tuple(points)


def _after(matrix: NDArray[np.float64], step: int, gallery: str) -> float:
    return float(matrix[step, step] if gallery == "merged" else np.mean(matrix[step, : step + 1]))


def _heat_map(run: RunScores, key: str, galleries: tuple[str, ...], most: int) -> HeatMap:
    """The matrix with the model before the first task above, where that was evaluated."""
    start = [START] if has_start(run) else []
    steps, tasks = [*start, *shown_steps(run, most)], shown_tasks(run, most)
    own = np.vstack([own_means(run, key), start_means(run, key)])  # START is its last row
    merged = None
    if "merged" in galleries and "merged" in run.galleries:
        diagonal = own_means(run, key, "merged").diagonal()
        merged = np.append(diagonal, np.nan)[steps]
    labels = tuple(step_label(run, step) for step in steps)
    return HeatMap(run.name, labels, tuple(steps), tuple(tasks), own[np.ix_(steps, tasks)], merged)


def _panel(run: RunScores, key: str, style: RunStyle, tasks: Sequence[int]) -> BarPanel:
    own = own_means(run, key)
    last = run.steps - 1
    final = tuple(float(own[last, task]) if task <= last else math.nan for task in tasks)
    learned = tuple(float(own[task, task]) if task < last else math.nan for task in tasks)
    return BarPanel(run.name, style, final, learned)
