"""Line charts of a score over the steps: all runs in one chart, or a small panel for each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.report.charts.style import LEVEL_DASH, RunStyle, ticks
from vlcpctl.report.charts.vega import panels, svg, text_width
from vlcpctl.report.markup import Markup

MANY_RUNS = 12  # more are drawn with thinner lines and without bands

_WIDTH, _HEIGHT = 800, 300
_PANEL_WIDTH, _PANEL_HEIGHT = 150, 76
_MOST_X_LABELS = 20
_MOST_MARKERS = 12  # on a line

Point = tuple[int, float, float, float]


@dataclass(frozen=True)
class Series:
    """One run: (step, mean, low, high) per evaluated step; a level is drawn as a flat line.

    Step -1 is the model before the first step.
    """

    name: str
    style: RunStyle
    points: tuple[Point, ...]
    is_level: bool = False

    @property
    def has_band(self) -> bool:
        """Whether its seeds differ."""
        return not self.is_level and any(low != high for _, _, low, high in self.points)


@dataclass(frozen=True)
class LineChart:
    """A chart of scores over steps: its name in file names, title, caption and runs.

    `scores` says what is drawn, for an axis that has no title above it.
    """

    name: str
    title: str
    scores: str
    caption: str
    series: tuple[Series, ...]

    @property
    def levels(self) -> tuple[Series, ...]:
        """The series that are flat lines."""
        return tuple(one for one in self.series if one.is_level and one.points)


@dataclass(frozen=True)
class Axes:
    """The range of steps and the tick marks of the scores, for all series of a chart."""

    first: int
    last: int
    marks: tuple[float, ...]

    @property
    def steps(self) -> list[int]:
        """The steps that have a label."""
        every = max(1, math.ceil((self.last + 1) / _MOST_X_LABELS))
        return [*range(self.first, 0), *range(0, self.last + 1, every)]

    @property
    def x_domain(self) -> list[float]:
        """The ends of the axis of steps, which has a length even if there is only one step."""
        ends = [float(self.first), float(self.last)]
        return [ends[0] - 0.5, ends[1] + 0.5] if self.first == self.last else ends


def axes_of(series: Sequence[Series], count: int = 7) -> Axes:
    """Axes that hold every point; `series` has at least one point."""
    points = [point for one in series for point in one.points]
    values = [value for point in points for value in point[1:]]
    low, high = min(values), max(values)
    marks = ticks(0 if 0 <= low < high / 2 else low, high, count)
    steps = [point[0] for point in points]
    return Axes(min(0, *steps), max(steps), tuple(marks))


def line_chart(title: str, series: Sequence[Series]) -> Markup:
    """The chart of all runs; empty if no run has a point."""
    series = [one for one in series if one.points]
    if not series:
        return Markup("")
    ends = "; ".join(
        f"{one.name} {one.points[-1][1]:.1f} {_when(one.points[-1][0])}" for one in series
    )
    names = {one.style.id: one.name for one in series}
    return svg(_spec(series, axes_of(series)), title, ends, names)


def panel_series(series: Sequence[Series]) -> list[Series]:
    """The series that `line_panels` draws, in its order."""
    return [one for one in series if one.points and not one.is_level]


def line_panels(series: Sequence[Series], key: str) -> list[Markup]:
    """A small chart for each run with a curve, on shared axes; all runs together are a grey band.

    The band reaches from the lowest to the highest mean of the runs at each step. Levels are left
    out; `panel_series` says which series have a panel.
    """
    series = panel_series(series)
    if not series:
        return []
    axes = axes_of(series, 4)
    spec = {
        "data": {
            "values": [
                {**row, "panel": place} for place, one in enumerate(series) for row in _rows(one)
            ]
        },
        "facet": {"field": "panel", "type": "ordinal", "header": None},
        "columns": 1,
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": _PANEL_WIDTH,
            "height": _PANEL_HEIGHT,
            "layer": _panel_layers(series, axes),
        },
    }
    left = max(text_width(f"{mark:,g}") for mark in axes.marks) + 8
    box = (-left, -8.0, left + _PANEL_WIDTH + 14, 8 + _PANEL_HEIGHT + 20.0)
    titles = [
        (f"{one.name}: {key} after each step", f"{one.points[-1][1]:.1f} at the end")
        for one in series
    ]
    return panels(spec, box, titles)


def _spec(series: Sequence[Series], axes: Axes) -> dict[str, Any]:
    encoding = _encoding(series, axes)
    width = 1.9 if len(series) <= MANY_RUNS else 1.2
    layers: list[dict[str, Any]] = []
    curves = [one for one in series if not one.is_level]
    banded = [one for one in curves if one.has_band and len(series) <= MANY_RUNS]
    if banded:
        channels = {**encoding, "y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}}
        channels.pop("strokeDash")
        layers.append(_layer(banded, {"type": "area", "opacity": 0.13}, channels))
    levels = [one for one in series if one.is_level]
    if levels:
        # Without x, Vega-Lite draws a rule across the whole chart.
        channels = {name: encoding[name] for name in ("y", "color", "description")}
        mark = {"type": "rule", "strokeDash": list(LEVEL_DASH), "strokeWidth": 1.5}
        layers.append(_layer(levels, mark, channels))
    if curves:
        mark = {"type": "line", "strokeWidth": width, "strokeJoin": "round"}
        layers.append(_layer(curves, mark, encoding))
        layers.append(_markers(curves, encoding))
    return {"width": _WIDTH, "height": _HEIGHT, "layer": layers}


def _layer(
    series: Sequence[Series], mark: dict[str, Any], encoding: Mapping[str, Any]
) -> dict[str, Any]:
    rows = [row for one in series for row in (_rows(one)[-1:] if one.is_level else _rows(one))]
    return {"data": {"values": rows}, "mark": mark, "encoding": dict(encoding)}


def _markers(series: Sequence[Series], encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Markers at every step, or at some of many: at other steps for each run."""
    rows = []
    for number, one in enumerate(series):
        every = math.ceil(len(one.points) / _MOST_MARKERS)
        rows += [] if one.style.marker is None else _rows(one)[number % every :: every]
    marked = [one for one in series if one.style.marker is not None]
    shapes = {
        "domain": [one.style.id for one in marked],
        "range": [one.style.marker for one in marked],
    }
    channels = {name: encoding[name] for name in ("x", "y", "color", "description")}
    channels["shape"] = {"field": "id", "type": "nominal", "legend": None, "scale": shapes}
    mark = {"type": "point", "filled": True, "size": 34, "opacity": 1}
    return {"data": {"values": rows}, "mark": mark, "encoding": channels}


def _encoding(series: Sequence[Series], axes: Axes) -> dict[str, Any]:
    domain = [one.style.id for one in series]
    colours = {"domain": domain, "range": [one.style.colour for one in series]}
    # Vega-Lite takes [1, 0] for solid.
    dashes = {"domain": domain, "range": [list(one.style.dash) or [1, 0] for one in series]}
    start = "datum.value < 0 ? 'start' : format(datum.value, 'd')"
    return {
        "x": {
            "field": "step",
            "type": "quantitative",
            "scale": {"domain": axes.x_domain, "nice": False},
            "axis": {"values": axes.steps, "labelExpr": start, "title": "after step"},
        },
        "y": {
            "field": "mean",
            "type": "quantitative",
            "scale": {"domain": [axes.marks[0], axes.marks[-1]], "nice": False},
            "axis": {"values": list(axes.marks), "title": None},
        },
        "color": {"field": "id", "type": "nominal", "legend": None, "scale": colours},
        "strokeDash": {"field": "id", "type": "nominal", "legend": None, "scale": dashes},
        "description": {"field": "id", "type": "nominal"},
    }


def _panel_layers(series: Sequence[Series], axes: Axes) -> list[dict[str, Any]]:
    encoding = _encoding(series, axes)
    x = {**encoding["x"], "axis": {"values": [axes.first, axes.last], "title": None}}
    x["axis"]["labelExpr"] = encoding["x"]["axis"]["labelExpr"]
    ends = [axes.marks[0], axes.marks[-1]]
    y = {**encoding["y"], "axis": {"values": ends, "title": None}}
    means: dict[int, list[float]] = {}
    for one in series:
        for step, mean, _, _ in one.points:
            means.setdefault(step, []).append(mean)
    everyone = [
        {"step": step, "low": min(found), "high": max(found)}
        for step, found in sorted(means.items())
    ]
    band = {**y, "field": "low"}
    line = {"x": x, "y": y, "color": encoding["color"]}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": everyone},
            "mark": {"type": "area", "color": "var(--muted)", "opacity": 0.16},
            "encoding": {"x": x, "y": band, "y2": {"field": "high"}},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line},
    ]
    if any(len(one.points) == 1 for one in series):
        # A line of a single point would be invisible.
        last = {"filter": "datum.is_single"}
        mark = {"type": "point", "filled": True, "size": 30, "opacity": 1}
        layers.append({"transform": [last], "mark": mark, "encoding": line})
    return layers


def _rows(one: Series) -> list[dict[str, Any]]:
    single = len(one.points) == 1
    return [
        {
            "id": one.style.id,
            "step": step,
            "mean": mean,
            "low": low,
            "high": high,
            **({"is_single": True} if single else {}),
        }
        for step, mean, low, high in one.points
    ]


def _when(step: int) -> str:
    return "at the start" if step < 0 else f"after step {step}"
