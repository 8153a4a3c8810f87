"""Line charts of a score over the steps: all runs in one chart, or a small panel for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.report.charts.style import LEVEL_DASH, RunStyle, ticks
from vlcpctl.report.charts.vega import dashes, nominal, panels, quantity, svg, text_width
from vlcpctl.report.markup import Markup

MANY_RUNS = 12  # more are drawn with thinner lines and without bands

_WIDTH, _HEIGHT = 800, 300
_PANEL_WIDTH, _PANEL_HEIGHT = 150, 76
_MOST_X_LABELS = 20
_LEAST_HEIGHT, _MOST = 5.0, 100.0  # points of score
_MOST_MARKERS = 12  # on a line
_START = "datum.value < 0 ? 'start' : format(datum.value, 'd')"

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

    @property
    def last(self) -> float:
        """The mean of the last step; -inf without any."""
        return self.points[-1][1] if self.points else -math.inf

    def rows(self) -> list[dict[str, Any]]:
        """Its points as data of a chart; of a level the last one."""
        is_single = {"is_single": True} if len(self.points) == 1 else {}
        return [
            {"id": self.style.id, "step": step, "mean": mean, "low": low, "high": high} | is_single
            for step, mean, low, high in (self.points[-1:] if self.is_level else self.points)
        ]


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
    def drawn(self) -> list[Series]:
        """The series that have a point."""
        return [one for one in self.series if one.points]

    @property
    def ranked(self) -> list[Series]:
        """These series, the best at the end first."""
        return sorted(self.drawn, key=lambda one: -one.last)

    @property
    def has_bands(self) -> bool:
        """Whether the lines are few enough for bands over their seeds."""
        return len(self.drawn) <= MANY_RUNS

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [one.name for one in self.series]

    def svg(self) -> Markup:
        """The chart of all runs; empty if no run has a point."""
        series = self.drawn
        if not series:
            return Markup("")
        ends = "; ".join(f"{one.name} {one.last:.1f} {_when(one.points[-1][0])}" for one in series)
        layers = self._layers(series)
        spec = {"width": _WIDTH, "height": _HEIGHT, "layer": layers}
        return svg(spec, self.title, ends, {one.style.id: one.name for one in series})

    def _layers(self, series: Sequence[Series]) -> list[dict[str, Any]]:
        encoding = _encoding(series, axes_of(series))
        layers: list[dict[str, Any]] = []
        curves = [one for one in series if not one.is_level]
        banded = [one for one in curves if one.has_band and self.has_bands]
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
            width = 1.9 if self.has_bands else 1.2
            mark = {"type": "line", "strokeWidth": width, "strokeJoin": "round"}
            layers += [_layer(curves, mark, encoding), _markers(curves, encoding)]
        return layers

    def panels(self, key: str) -> list[tuple[Series, Markup]]:
        """Each run with a curve and its small chart, on shared axes; all together are a grey band.

        The band reaches from the lowest to the highest mean of the runs at each step. Levels are
        left out.
        """
        series = [one for one in self.drawn if not one.is_level]
        if not series:
            return []
        axes = axes_of(series, 4)
        rows = [{**row, "panel": place} for place, one in enumerate(series) for row in one.rows()]
        left = max(text_width(f"{mark:,g}") for mark in axes.marks) + 8
        titles = [
            (f"{one.name}: {key} after each step", f"{one.last:.1f} at the end") for one in series
        ]
        size = (_PANEL_WIDTH, _PANEL_HEIGHT)
        drawn = panels(rows, _panel_layers(series, axes), titles, size, (left, 8, 14, 20))
        return list(zip(series, drawn, strict=True))


def axes_of(series: Iterable[Series], count: int = 7) -> Axes:
    """Axes that hold every point; `series` has at least one.

    They are at least five points of score high, so that noise does not look like a trend.
    """
    points = [point for one in series for point in one.points]
    values = [value for point in points for value in point[1:]]
    low, high = _at_least_high(min(values), max(values))
    marks = ticks(0 if 0 <= low < high / 2 else low, high, count)
    steps = [point[0] for point in points]
    return Axes(min(0, *steps), max(steps), tuple(marks))


def _at_least_high(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis of scores in percent, around these ones.

    >>> _at_least_high(40.0, 41.0), _at_least_high(0.5, 1.0), _at_least_high(98.0, 99.0)
    ((38.0, 43.0), (0.0, 5.0), (95.0, 100.0))
    """
    lacking = max(0.0, _LEAST_HEIGHT - (high - low))
    bottom = low - lacking / 2
    bottom = 0.0 if bottom < 0 <= low else bottom
    bottom = min(bottom, _MOST - _LEAST_HEIGHT) if high <= _MOST else bottom
    return bottom, max(high, bottom + _LEAST_HEIGHT)


def _layer(
    series: Iterable[Series], mark: dict[str, Any], encoding: Mapping[str, Any]
) -> dict[str, Any]:
    rows = [row for one in series for row in one.rows()]
    return {"data": {"values": rows}, "mark": mark, "encoding": dict(encoding)}


def _markers(series: Sequence[Series], encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Markers at every step, or at some of many: at other steps for each run."""
    rows = []
    for number, one in enumerate(series):
        every = math.ceil(len(one.points) / _MOST_MARKERS)
        rows += [] if one.style.marker is None else one.rows()[number % every :: every]
    channels = {name: encoding[name] for name in ("x", "y", "color", "description")}
    shapes = {one.style.id: one.style.marker for one in series if one.style.marker is not None}
    channels["shape"] = nominal("id", shapes)
    mark = {"type": "point", "filled": True, "size": 34, "opacity": 1}
    return {"data": {"values": rows}, "mark": mark, "encoding": channels}


def _encoding(series: Sequence[Series], axes: Axes) -> dict[str, Any]:
    steps = {"values": axes.steps, "labelExpr": _START, "title": "after step"}
    return {
        "x": quantity("step", axes.x_domain, steps),
        "y": quantity("mean", axes.marks, {"values": list(axes.marks), "title": None}),
        "color": nominal("id", {one.style.id: one.style.colour for one in series}),
        "strokeDash": nominal("id", {one.style.id: dashes(one.style.dash) for one in series}),
        "description": {"field": "id", "type": "nominal"},
    }


def _panel_layers(series: Sequence[Series], axes: Axes) -> list[dict[str, Any]]:
    ends = {"values": [axes.first, axes.last], "labelExpr": _START, "title": None}
    marks = [axes.marks[0], axes.marks[-1]]
    line = {
        "x": quantity("step", axes.x_domain, ends),
        "y": quantity("mean", marks, {"values": marks, "title": None}),
        "color": nominal("id", {one.style.id: one.style.colour for one in series}),
    }
    means: dict[int, list[float]] = {}
    for one in series:
        for step, mean, _, _ in one.points:
            means.setdefault(step, []).append(mean)
    everyone = [
        {"step": step, "low": min(found), "high": max(found)}
        for step, found in sorted(means.items())
    ]
    band = {"x": line["x"], "y": {**line["y"], "field": "low"}, "y2": {"field": "high"}}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": everyone},
            "mark": {"type": "area", "color": "var(--muted)", "opacity": 0.16},
            "encoding": band,
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": line},
    ]
    if any(len(one.points) == 1 for one in series):
        # A line of a single point would be invisible.
        last = {"filter": "datum.is_single"}
        mark = {"type": "point", "filled": True, "size": 30, "opacity": 1}
        layers.append({"transform": [last], "mark": mark, "encoding": line})
    return layers


def _when(step: int) -> str:
    return "at the start" if step < 0 else f"after step {step}"
