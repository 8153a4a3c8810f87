"""Scatter chart of two measures, a point per run, each named beside its point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vlcpctl.report.charts.style import RunStyle, ticks
from vlcpctl.report.charts.vega import FONT, svg, text_width
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


def scatter_chart(
    title: str, points: Sequence[ScatterPoint], titles: tuple[str, str]
) -> tuple[Markup, list[str]]:
    """The chart with titles of x and y, and the names of the points that had no room for a label.

    The chart is empty if there are no points.
    """
    if not points:
        return Markup(""), []
    domains = _domain(one.x for one in points), _domain(one.y for one in points)
    places = [
        (_WIDTH * _share(one.x[1], domains[0]), _HEIGHT * (1 - _share(one.y[1], domains[1])))
        for one in points
    ]
    labels = _labels([one.name for one in points], places)
    rows: list[dict[str, object]] = [
        {
            "run": one.style.id,
            "name": one.name,
            **dict(zip(("x_low", "x", "x_high"), one.x, strict=True)),
            **dict(zip(("y_low", "y", "y_high"), one.y, strict=True)),
            "left": labels[number][0] if number in labels else None,
            "top": labels[number][1] if number in labels else None,
        }
        for number, one in enumerate(points)
    ]
    ids = [one.style.id for one in points]
    spec = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": rows},
        "encoding": {
            "color": {
                "field": "run",
                "type": "nominal",
                "scale": {"domain": ids, "range": [one.style.colour for one in points]},
                "legend": None,
            },
            "description": {"field": "run"},
        },
        "layer": [
            _range("x", titles, domains),
            _range("y", titles, domains),
            _points(points, titles, domains),
            *_names(rows),
        ],
    }
    found = "; ".join(f"{one.name} {one.x[1]:.2f}, {one.y[1]:.2f}" for one in points)
    left_out = [one.name for number, one in enumerate(points) if number not in labels]
    names = {one.style.id: one.name for one in points}
    return svg(spec, title, f"{titles[0]}, {titles[1]}: {found}", names), left_out


def _domain(ranges: Iterable[Range]) -> tuple[float, float]:
    values = [value for one in ranges for value in one]
    room = max(max(values) - min(values), 1.0) * 0.06
    marks = ticks(min(values) - room, max(values) + room)
    return marks[0], marks[-1]


def _share(value: float, domain: tuple[float, float]) -> float:
    return (value - domain[0]) / (domain[1] - domain[0])


def _axes(titles: tuple[str, str], domains: tuple[tuple[float, float], ...]) -> dict[str, object]:
    return {
        name: {
            "field": name,
            "type": "quantitative",
            "scale": {"domain": list(domain), "nice": False},
            "axis": {"title": title, "tickCount": 6, "format": ".4~g"},
        }
        for name, title, domain in zip("xy", titles, domains, strict=True)
    }


def _points(
    points: Sequence[ScatterPoint],
    titles: tuple[str, str],
    domains: tuple[tuple[float, float], ...],
) -> dict[str, object]:
    ids = [one.style.id for one in points]
    shapes = [one.style.marker or "circle" for one in points]
    return {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {
            **_axes(titles, domains),
            "shape": {
                "field": "run",
                "type": "nominal",
                "scale": {"domain": ids, "range": shapes},
                "legend": None,
            },
        },
    }


def _range(
    along: str, titles: tuple[str, str], domains: tuple[tuple[float, float], ...]
) -> dict[str, object]:
    """A thin line from the lowest to the highest seed."""
    axes = _axes(titles, domains)
    ends = {along: {**_field(axes, along), "field": f"{along}_low"}}
    return {
        "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.7},
        "encoding": {**axes, **ends, f"{along}2": {"field": f"{along}_high"}},
    }


def _field(axes: dict[str, object], name: str) -> dict[str, object]:
    found = axes[name]
    assert isinstance(found, dict)
    return found


def _names(rows: list[dict[str, object]]) -> Iterator[dict[str, object]]:
    """A label per run, at the pixels where it has room."""
    for row in rows:
        if row["left"] is not None:
            yield {
                "data": {"values": [row]},
                "mark": {"type": "text", "align": "left", "baseline": "middle", "fontSize": FONT},
                "encoding": {
                    "text": {"field": "name"},
                    # Names in the colours of some runs are too faint to read.
                    "color": {"value": "var(--ink)"},
                    "x": {"value": row["left"]},
                    "y": {"value": row["top"]},
                },
            }


def _labels(
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
