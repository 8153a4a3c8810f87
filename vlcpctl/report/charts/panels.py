"""Small line charts of one quantity each, a line per run, that are read side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.style import RunStyle
from vlcpctl.report.charts.vega import svg
from vlcpctl.report.markup import Markup

_WIDTH, _HEIGHT = 320, 160
_DIGITS = 5  # of a value

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PanelLine:
    """One run: x (N,) ascending, values (N,) with NaN where the line is broken, and their range.

    `low` and `high` (N,) are of the lowest and highest seed.
    """

    name: str
    style: RunStyle
    x: Floats
    values: Floats
    low: Floats
    high: Floats


def line_panel(
    title: str, lines: Sequence[PanelLine], x_title: str, x_range: tuple[float, float]
) -> Markup:
    """The chart, with x from the first to the last of `x_range`; empty if no line has a value."""
    lines = [one for one in lines if np.isfinite(one.values).any()]
    if not lines:
        return Markup("")
    ends = "; ".join(f"{one.name} ends at {_last(one):.4g}" for one in lines)
    ids = [one.style.id for one in lines]
    spec = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": [row for one in lines for row in _rows(one)]},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "scale": {"nice": False, "domain": list(x_range)},
                "axis": {"title": x_title, "tickMinStep": 1, "tickCount": 8, "format": "~d"},
            },
            "color": {
                "field": "run",
                "type": "nominal",
                "scale": {"domain": ids, "range": [one.style.colour for one in lines]},
                "legend": None,
            },
            "description": {"field": "run"},
        },
        "layer": [
            *([_BAND] if any(map(_has_band, lines)) else []),
            _line(ids, lines),
            _ends(lines),
        ],
    }
    return svg(spec, title, ends, {one.style.id: one.name for one in lines})


_BAND = {
    "mark": {"type": "area", "opacity": 0.14},
    "encoding": {
        "y": {"field": "low", "type": "quantitative"},
        "y2": {"field": "high"},
        "opacity": {"value": 0.14},
    },
}


def _line(ids: list[str], lines: Sequence[PanelLine]) -> dict[str, object]:
    return {
        "mark": {"type": "line", "strokeWidth": 1.4, "strokeJoin": "round"},
        "encoding": {
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": {"zero": False},
                "axis": {"title": None, "tickCount": 5, "format": ".4~g"},
            },
            "strokeDash": {
                "field": "run",
                "type": "nominal",
                "scale": {
                    "domain": ids,
                    "range": [list(one.style.dash or (1, 0)) for one in lines],
                },
                "legend": None,
            },
        },
    }


def _ends(lines: Sequence[PanelLine]) -> dict[str, object]:
    """The marker of each run at the end of its line, which tells runs apart in grey."""
    marked = [one for one in lines if one.style.marker is not None]
    ends = [
        {"run": one.style.id, "x": row["x"], "y": row["y"]}
        for one in marked
        for row in [[row for row in _rows(one) if row["y"] is not None][-1]]
    ]
    return {
        "data": {"values": ends},
        "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
        "encoding": {
            "y": {"field": "y", "type": "quantitative"},
            "shape": {
                "field": "run",
                "type": "nominal",
                "scale": {
                    "domain": [one.style.id for one in marked],
                    "range": [one.style.marker for one in marked],
                },
                "legend": None,
            },
        },
    }


def _rows(one: PanelLine) -> list[dict[str, object]]:
    columns = (one.x, one.values, one.low, one.high)
    return [
        {
            "run": one.style.id,
            "x": _short(x),
            "y": _short(y),
            "low": _short(low),
            "high": _short(high),
        }
        for x, y, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _has_band(one: PanelLine) -> bool:
    return bool((one.low < one.high).any())


def _last(one: PanelLine) -> float:
    return float(one.values[np.isfinite(one.values)][-1])
