"""Line chart of a score over the steps, one line per run, labelled at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vlcpctl.report.charts.frame import label, line, shortened, svg, text_width, ticks
from vlcpctl.report.markup import Markup, element, joined

_WIDTH, _HEIGHT = 860, 340
_LEFT, _TOP, _BOTTOM = 40, 12, 44
_LABEL_ROOM = 180  # maximum width of the names at the right
_LINE_HEIGHT = 15  # minimum distance between two names


@dataclass(frozen=True)
class Series:
    """One run: (step, mean, low, high) per evaluated step; a level is drawn as a flat line.

    Step -1 is the model before the first step.
    """

    name: str
    css: str
    points: tuple[tuple[int, float, float, float], ...]
    is_level: bool = False


@dataclass(frozen=True)
class _Scale:
    first: int
    steps: int
    low: float
    high: float
    right: float

    def x(self, step: float) -> float:
        share = (step - self.first) / max(self.steps - 1 - self.first, 1)
        return _LEFT + 10 + (self.right - _LEFT - 20) * share

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share


def line_chart(title: str, series: Sequence[Series]) -> Markup:
    """The chart; empty if no run has a point."""
    series = [one for one in series if one.points]
    if not series:
        return Markup("")
    marks = _marks(series)
    room = min(_LABEL_ROOM, max(text_width(one.name) for one in series) + 62)
    steps = max(point[0] for one in series for point in one.points) + 1
    first = min(0, *(one.points[0][0] for one in series))
    scale = _Scale(first, steps, marks[0], marks[-1], _WIDTH - room)
    ends = "; ".join(
        f"{one.name} {one.points[-1][1]:.1f} {_when(one.points[-1][0])}" for one in series
    )
    return svg(
        title,
        ends,
        (_WIDTH, _HEIGHT),
        _axes(scale, marks),
        *(_band(one, scale) for one in series),
        *(_curve(one, scale) for one in series),
        _names(series, scale, room),
    )


def _when(step: int) -> str:
    return "at the start" if step < 0 else f"after step {step}"


def _marks(series: Sequence[Series]) -> list[float]:
    values = [value for one in series for point in one.points for value in point[1:]]
    low, high = min(values), max(values)
    return ticks(0 if low < high / 2 else low, high, 7)


def _axes(scale: _Scale, marks: list[float]) -> Markup:
    bottom = _HEIGHT - _BOTTOM
    every = max(1, math.ceil(scale.steps / 20))  # 0 steps: only the start was evaluated
    return joined(
        *(line(_LEFT, scale.y(mark), scale.right, scale.y(mark), "grid") for mark in marks),
        *(label(f"{mark:g}", _LEFT - 8, scale.y(mark) + 4, "tick", "end") for mark in marks),
        *(
            label("start" if s < 0 else str(s), scale.x(s), bottom + 17, "tick", "middle")
            for s in [*range(scale.first, 0), *range(0, scale.steps, every)]
        ),
        label("after step", (_LEFT + scale.right) / 2, bottom + 36, "axis", "middle"),
    )


def _band(one: Series, scale: _Scale) -> Markup:
    """The area between the lowest and the highest seed."""
    if one.is_level or len(one.points) < 2 or all(low == high for _, _, low, high in one.points):
        return Markup("")
    upper = [(step, high) for step, _, _, high in one.points]
    lower = [(step, low) for step, _, low, _ in reversed(one.points)]
    return element("polygon", points=_path([*upper, *lower], scale), class_=f"band {one.css}")


def _curve(one: Series, scale: _Scale) -> Markup:
    means = [(step, mean) for step, mean, _, _ in one.points]
    if one.is_level:
        height = scale.y(means[-1][1])
        return line(
            scale.x(scale.first), height, scale.x(scale.steps - 1), height, f"curve level {one.css}"
        )
    dots = (
        element("circle", cx=round(scale.x(s), 1), cy=round(scale.y(v), 1), r=2.6) for s, v in means
    )
    curve = element("polyline", points=_path(means, scale), class_=f"curve {one.css}")
    return joined(curve, element("g", *dots, class_=f"dots {one.css}"))


def _path(points: Sequence[tuple[int, float]], scale: _Scale) -> str:
    return " ".join(f"{scale.x(step):.1f},{scale.y(value):.1f}" for step, value in points)


def _names(series: Sequence[Series], scale: _Scale, room: float) -> Markup:
    """Names with final values beside the ends of their lines, moved apart."""
    by_height = sorted(series, key=lambda one: -one.points[-1][1])
    wanted = [scale.y(one.points[-1][1]) for one in by_height]
    places = spread_apart(wanted, _LINE_HEIGHT, _HEIGHT - _BOTTOM + 6)
    parts = []
    for one, at, place in zip(by_height, wanted, places, strict=True):
        step, mean = one.points[-1][:2]
        name = shortened(one.name, room - 58)
        start = scale.x(scale.steps - 1 if one.is_level else step)
        parts.append(line(start + 4, at, scale.right + 12, place, f"leader {one.css}"))
        parts.append(label(f"{name} {mean:.1f}", scale.right + 16, place + 4, f"name {one.css}"))
    return joined(*parts)


def spread_apart(wanted: Sequence[float], distance: float, limit: float) -> list[float]:
    """Positions near the wanted ones (ascending), at least `distance` apart, up to `limit`.

    >>> spread_apart([10, 12, 50], 15, 100)
    [10, 25, 50]
    """
    places: list[float] = []
    for at in wanted:
        places.append(max(at, places[-1] + distance) if places else at)
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit)
        limit = places[index] - distance
    return places
