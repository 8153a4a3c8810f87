"""Scatter chart of two measures, a point per run, each named beside its point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vlcpctl.core.printable import printable
from vlcpctl.report.charts.style import RunStyle, ticks
from vlcpctl.report.charts.vega import FONT, nominal, quantity, svg, text_width
from vlcpctl.report.markup import Markup

_WIDTH, _HEIGHT = 440, 300
_RADIUS = 5

Range = tuple[float, float, float]  # lowest seed, mean, highest seed
_Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class ScatterPoint:
    """One run: the lowest seed, the mean and the highest seed of both measures."""

    name: str
    style: RunStyle
    x: Range
    y: Range


@dataclass(frozen=True)
class ScatterChart:
    """The points of the runs, of which there is at least one, with titles of x and y."""

    title: str
    caption: str
    titles: tuple[str, str]
    points: tuple[ScatterPoint, ...]

    @property
    def unnamed(self) -> int:
        """How many points have no room for a label."""
        return len(self.points) - len(self._labels)

    @cached_property
    def _domains(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return _domain(one.x for one in self.points), _domain(one.y for one in self.points)

    @cached_property
    def _labels(self) -> dict[int, tuple[float, float]]:
        x, y = self._domains
        places = [
            (_WIDTH * _share(one.x[1], x), _HEIGHT * (1 - _share(one.y[1], y)))
            for one in self.points
        ]
        return labels([printable(one.name) for one in self.points], places)

    def svg(self) -> Markup:
        """The chart."""
        rows: list[dict[str, Any]] = [
            {
                "run": one.style.id,
                "name": printable(one.name),  # the engine aborts at control characters
                **dict(zip(("x_low", "x", "x_high"), one.x, strict=True)),
                **dict(zip(("y_low", "y", "y_high"), one.y, strict=True)),
            }
            for one in self.points
        ]
        axes = {
            name: quantity(
                name, ends, {"title": printable(title), "tickCount": 6, "format": ".4~g"}
            )
            for name, title, ends in zip("xy", self.titles, self._domains, strict=True)
        }
        shapes = {one.style.id: one.style.marker or "circle" for one in self.points}
        points = {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {**axes, "shape": nominal("run", shapes)},
        }
        spec = {
            "width": _WIDTH,
            "height": _HEIGHT,
            "data": {"values": rows},
            "encoding": {
                "color": nominal("run", {one.style.id: one.style.colour for one in self.points}),
                "description": {"field": "run"},
            },
            "layer": [
                *(_range(along, axes) for along in "xy"),
                points,
                *(_name(rows[number], place) for number, place in self._labels.items()),
            ],
        }
        found = "; ".join(f"{one.name} {one.x[1]:.2f}, {one.y[1]:.2f}" for one in self.points)
        about = f"{self.titles[0]}, {self.titles[1]}: {found}"
        return svg(spec, self.title, about, {one.style.id: one.name for one in self.points})


def _domain(ranges: Iterable[Range]) -> tuple[float, float]:
    values = [value for one in ranges for value in one]
    room = max(max(values) - min(values), 1.0) * 0.06
    marks = ticks(min(values) - room, max(values) + room)
    return marks[0], marks[-1]


def _share(value: float, domain: tuple[float, float]) -> float:
    return (value - domain[0]) / (domain[1] - domain[0])


def _range(along: str, axes: Mapping[str, Any]) -> dict[str, Any]:
    """A thin line from the lowest to the highest seed."""
    ends = {along: {**axes[along], "field": f"{along}_low"}}
    return {
        "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7},
        "encoding": {**axes, **ends, f"{along}2": {"field": f"{along}_high"}},
    }


def _name(row: dict[str, Any], place: tuple[float, float]) -> dict[str, Any]:
    """The label of a run at the pixels where it has room."""
    return {
        "data": {"values": [row]},
        "mark": {"type": "text", "align": "left", "baseline": "middle", "fontSize": FONT},
        "encoding": {
            "text": {"field": "name"},
            # Names in the colours of some runs are too faint to read.
            "color": {"value": "var(--ink)"},
            "x": {"value": place[0]},
            "y": {"value": place[1]},
        },
    }


def labels(
    names: Sequence[str], places: Sequence[tuple[float, float]]
) -> dict[int, tuple[float, float]]:
    """The left end and the middle of each name that has room, by the number of its point."""
    taken: list[_Box] = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places]
    found: dict[int, tuple[float, float]] = {}
    for number, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        width = text_width(name)
        for left, middle in _candidates(x, y, width):
            box = (left, middle - FONT * 0.6, left + width, middle + FONT * 0.6)
            if _is_inside(box) and not any(_overlap(box, one) for one in taken):
                taken.append(box)
                found[number] = left, middle
                break
    return found


def _candidates(x: float, y: float, width: float) -> Iterator[tuple[float, float]]:
    """Places for a label of a point at (x, y), the best first."""
    gap = _RADIUS + 4
    for away in (0, 1, -1, 2, -2):
        yield x + gap, y + away * (FONT + 3)
        yield x - gap - width, y + away * (FONT + 3)
        if away:
            yield x - width / 2, y + away * (FONT + 3)


def _is_inside(box: _Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT


def _overlap(one: _Box, other: _Box) -> bool:
    apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not apart
