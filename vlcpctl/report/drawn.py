"""What the charts of a report show: chosen here, drawn by `charts` and by `figures`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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
from vlcpctl.report.formats import paper_name
from vlcpctl.report.report import Document
from vlcpctl.report.scores import GROUPS, START, Run, Track
from vlcpctl.report.tables import (
    ordered_runs,
    own_means,
    shown_steps,
    shown_tasks,
    step_label,
)

Styles = Mapping[str, RunStyle]

_LEAST_RANGE = 5.0  # points on the axes of a scatter, so that noise does not look like a difference
_KEEP = 0.999  # share of the angles that a histogram shows; the tables have the rest


def run_styles(document: Document) -> dict[str, RunStyle]:
    """The style of each run, the same in all charts; joint training, the upper bound, is grey."""
    runs = [run for track in document.tracks for run in track.runs]
    return styles(document.names, {run.name for run in runs if run.group == GROUPS[0]})


class TrackCharts(NamedTuple):
    """The charts of a track: the score over the steps, kept of learned, by step and task, per task.

    None is a chart without anything to draw.
    """

    curves: LineChart | None
    kept: LineChart | None
    heat: GridChart | None
    bars: GridChart | None


def track_charts(document: Document, track: Track, of: Styles) -> TrackCharts:
    """The charts of a track in its main metric."""
    key = document.key(track)
    runs = ordered_runs(track, key)
    own = [run for run in runs if run.steps and "own" in run.galleries]
    heat = _heat_maps([run for run in own if not run.final_only], key, of)
    return TrackCharts(_curves(runs, key, of), _kept(own, key, of), heat, _bars(own, key, of))


def _curves(runs: Sequence[Run], key: str, of: Styles) -> LineChart | None:
    """The score after each step: on the merged gallery, or the mean over tasks."""
    is_merged = any("merged" in run.galleries for run in runs)
    what = "merged gallery of the tasks so far" if is_merged else "mean over the tasks so far"
    lines = [
        Line(run.name, of[run.name], np.array(points).T, run.final_only)
        for run in runs
        if (points := [*_points(run, key, is_merged=is_merged)])
    ]
    if not lines:
        return None
    measure = paper_name(key)
    title = f"{measure} after each step, {what}"
    said = {
        "Band: lowest to highest seed.": any(one.has_band for one in lines),
        "Start: the model before the first task, on the first task.": any(
            one.points[0, 0] == START for one in lines
        ),
        "Dashed line without markers: evaluated at the last step only.": any(
            one.is_level for one in lines
        ),
    }
    caption = " ".join([f"{title}.", *(text for text, is_true in said.items() if is_true)])
    titles = ("after step", f"{measure}, {what}")
    return LineChart("curves", title, caption, titles, tuple(lines), **score_axes(lines))


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


def _kept(runs: Sequence[Run], key: str, of: Styles) -> LineChart | None:
    """A point for each run: what it learned, and what it keeps of it; None of fewer than two."""
    lines = []
    for run in runs:
        learned, lost = run.summary(key, "own_learned"), run.summary(key, "fr_dha")
        if learned is not None and lost is not None:
            place = learned.mean, *[100 - lost.mean] * 3
            lines.append(Line(run.name, of[run.name], np.array([place]).T))
    if len(lines) < 2:
        return None
    places = np.hstack([one.means for one in lines])
    ends = ((float(one.min()), float(one.max())) for one in places)
    xs, ys = (ticks(low, max(high, low + _LEAST_RANGE)) for low, high in ends)
    title = f"Stability against plasticity in {paper_name(key)}"
    caption = (
        f"{title}: a point for each run. Plasticity is own_learned, the score on each task just "
        "after learning it; stability is 100 - fr_dha, the percentage of that which the last model "
        "keeps, averaged over the earlier tasks."
    )
    titles = (f"plasticity: {paper_name(key)} just after learning", "stability: percent kept")
    axes = (xs[0], xs[-1]), xs, ys, "{:g}".format
    return LineChart("stability", title, caption, titles, tuple(lines), *axes, (440, 300), 1)


def _heat_maps(runs: Sequence[Run], key: str, of: Styles) -> GridChart | None:
    """A step x task heat map per run, all on one scale; None without any."""
    grids = []
    for run in runs:
        # The model before the first task is above, where that was evaluated.
        steps = [*([START] if run.has_start else []), *shown_steps(run)]
        tasks = shown_tasks(run)
        shown = own_means(run, key)[np.ix_([step + 1 for step in steps], tasks)]
        rows, columns = (tuple(map(step_name, numbers)) for numbers in (steps, tasks))
        grids += [RunGrid(run.name, of[run.name], rows, columns, shown)] if steps else []
    title = f"{paper_name(key)} by step and task"
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
    name = paper_name(key)
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
