"""The charts of a report: this module selects the data, charts/ draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.bars import BarPanel, bar_chart
from vlcpctl.report.charts.frame import colour
from vlcpctl.report.charts.heatmap import HeatMapScores, heatmap
from vlcpctl.report.charts.histograms import HistogramPanel as Angles
from vlcpctl.report.charts.histograms import histograms, scale_of
from vlcpctl.report.charts.lines import Series, line_chart
from vlcpctl.report.markup import Markup, element
from vlcpctl.report.scores.drops import Curve
from vlcpctl.report.scores.runs import START, RunScores
from vlcpctl.report.tables.angles import SIDES, AngleMeasure, SpatialTrack
from vlcpctl.report.tables.comparison import GROUPS
from vlcpctl.report.tables.matrices import (
    has_start,
    own_means,
    shown_steps,
    shown_tasks,
    start_means,
    step_label,
)

_MOST_GUARDS = 24  # charts of guards in a track


def colours(runs: list[RunScores]) -> dict[str, str]:
    """The CSS class of each run; joint training, the upper bound, is grey."""
    bounds = [run.name for run in runs if run.group == GROUPS[0]]
    others = [run.name for run in runs if run.name not in bounds]
    return dict.fromkeys(bounds, "run-joint") | {name: colour(i) for i, name in enumerate(others)}


def curves(runs: list[RunScores], key: str, gallery: str) -> Markup:
    """Line chart of the score after each step: on the merged gallery, or the mean over tasks."""
    css = colours(runs)
    series = [
        Series(run.name, css[run.name], _points(run, key, gallery), run.final_only) for run in runs
    ]
    what = (
        "merged gallery of the tasks so far"
        if gallery == "merged"
        else "mean over the tasks so far"
    )
    chart = line_chart(f"{key} after each step, {what}", series)
    several = any(len(run.seeds) > 1 for run in runs)
    caption = f"{key} after each step, {what}."
    caption += " Band: lowest to highest seed." if several else ""
    if any(point[0] == START for one in series for point in one.points):
        caption += " Start: the model before the first task, on the first task."
    caption += (
        " Dotted: evaluated at the last step only." if any(one.is_level for one in series) else ""
    )
    return _figure(chart, caption)


def guards(curves: Sequence[Curve], runs: list[RunScores], key: str) -> list[Markup]:
    """Line charts of the scores after each step, one for each guard, a line for each run.

    A baseline that is not the run's start is a level line. Of many guards, those with the largest
    drops are drawn.
    """
    by_data: dict[str, list[Curve]] = {}
    for one in curves:
        by_data.setdefault(one.data, []).append(one)
    drops = {data: max(map(_drop(key), members)) for data, members in by_data.items()}
    shown = sorted(sorted(by_data, key=lambda data: -drops[data])[:_MOST_GUARDS])
    css = colours(runs)
    # A run without rows on its stream is in no other chart.
    others = sorted({one.run.name for one in curves} - css.keys())
    css |= {name: colour(len(css) + place) for place, name in enumerate(others)}
    charts = [_guard(data, by_data[data], css, key) for data in shown]
    if len(by_data) > len(shown):
        note = f"Drawn: the {len(shown)} of {len(by_data)} guards with the largest drops."
        charts.append(element("p", note))
    return [chart for chart in charts if chart]


def _drop(key: str) -> Callable[[Curve], float]:
    def of(curve: Curve) -> float:
        drop = curve.drop(key).drop
        return -math.inf if drop is None else drop.mean

    return of


def _guard(data: str, curves: list[Curve], css: Mapping[str, str], key: str) -> Markup:
    series = [Series(one.run.name, css[one.run.name], _guard_points(one, key)) for one in curves]
    levels: dict[str, float] = {}
    first = min(step for one in curves for step in one.steps)
    for one in curves:
        baseline = one.baseline(key)
        if baseline is not None and one.is_apart:
            name = f"baseline {' and '.join(one.run.models)}"
            levels.setdefault(name, baseline.mean)
    series += [
        Series(name, "run-joint", ((first, level, level, level),), is_level=True)
        for name, level in levels.items()
    ]
    chart = line_chart(f"{key} on {data} after each step", series)
    caption = f"{key} on {data} after each step."
    caption += (
        " Start: the model before the first task."
        if any(START in one.steps for one in curves)
        else ""
    )
    caption += " Dotted: the baseline." if levels else ""
    caption += " Band: lowest to highest seed." if any(len(one.seeds) > 1 for one in curves) else ""
    return _figure(chart, caption)


def _guard_points(curve: Curve, key: str) -> tuple[tuple[int, float, float, float], ...]:
    scores = [(step, curve.at(step, key)) for step in curve.steps]
    return tuple(
        (step, one.mean, min(one.values), max(one.values))
        for step, one in scores
        if one is not None
    )


def heatmaps(runs: list[RunScores], key: str, galleries: tuple[str, ...]) -> Markup:
    """A task x step heat map per run with several steps, all on one colour scale."""
    shown = [run for run in runs if not run.final_only and run.steps and "own" in run.galleries]
    highest = max(
        (float(np.nanmax(own_means(run, key), initial=0.0)) for run in shown), default=0.0
    )
    figures = [
        element(
            "figure",
            element("figcaption", run.name),
            heatmap(f"{run.name}: {key} by step and task", matrix),
        )
        for run in shown
        for matrix in [_matrix(run, key, galleries, highest)]
        if matrix.steps
    ]
    return element("div", *figures, class_="panels") if figures else Markup("")


def bars(runs: list[RunScores], key: str) -> Markup:
    """Bar chart of the last model's score on each task, with the score just after learning it."""
    shown = [run for run in runs if run.steps and "own" in run.galleries]
    if not shown:
        return Markup("")
    longest = max(shown, key=lambda run: len(run.tasks))
    css = colours(runs)
    panels = [_panel(run, key, css[run.name], shown_tasks(longest)) for run in shown]
    places = shown_tasks(longest)
    if not places:
        return Markup("")
    labels = [step_label(longest, task) for task in places]
    chart = bar_chart(f"{key} per task, last model", labels, panels)
    return _figure(
        chart,
        f"{key} on each task's own gallery. Bar: last model. Tick: just after learning it.",
    )


def angle_histograms(spatial_track: SpatialTrack, measure: AngleMeasure) -> list[Markup]:
    """Histograms of a measure's angles per run, a panel per pair of steps, all on one scale."""
    one, other = (f"{measure.name}_{side}" for side in measure.sides)
    panels: dict[str, list[Angles]] = {}
    for pair in spatial_track.pairs:
        shares = (pair.share(one), pair.share(other))
        panels.setdefault(pair.run, []).append(Angles(pair.steps, shares))
    scale = scale_of([panel for members in panels.values() for panel in members])
    if scale is None:
        return []
    sides = (SIDES[measure.sides[0]], SIDES[measure.sides[1]])
    charts = {
        run: histograms(f"{run}: {measure.short} on {spatial_track.task}", sides, members, scale)
        for run, members in panels.items()
    }
    return [
        _figure(chart, f"{run}: percent of the angles in each degree, per pair of steps.")
        for run, chart in charts.items()
    ]


def _figure(chart: Markup, caption: str) -> Markup:
    if not chart:
        return chart
    return element("figure", chart, element("figcaption", caption), class_="wide")


def _points(run: RunScores, key: str, gallery: str) -> tuple[tuple[int, float, float, float], ...]:
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


def _matrix(run: RunScores, key: str, galleries: tuple[str, ...], highest: float) -> HeatMapScores:
    """The matrix with the model before the first task above, where that was evaluated."""
    start = [START] if has_start(run) else []
    steps, tasks = [*start, *shown_steps(run)], shown_tasks(run)
    own = np.vstack([own_means(run, key), start_means(run, key)])  # START is its last row
    merged = None
    if "merged" in galleries and "merged" in run.galleries:
        diagonal = own_means(run, key, "merged").diagonal()
        merged = np.append(diagonal, np.nan)[steps]
    labels = [step_label(run, step) for step in steps]
    return HeatMapScores(labels, steps, tasks, own[np.ix_(steps, tasks)], merged, highest or 1.0)


def _panel(run: RunScores, key: str, css: str, tasks: list[int]) -> BarPanel:
    own = own_means(run, key)
    last = run.steps - 1
    final = [float(own[last, task]) if task <= last else math.nan for task in tasks]
    learned = [float(own[task, task]) if task < last else math.nan for task in tasks]
    return BarPanel(run.name, css, final, learned)
