"""Small line charts of one quantity each, a line per run, that are read side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.style import RunStyle
from vlcpctl.report.charts.vega import dashes, nominal, quantity, svg
from vlcpctl.report.markup import Markup

_WIDTH, _HEIGHT = 320, 160
_DIGITS = 5  # of a value

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PanelLine:
    """One run: x (N,) ascending, the mean (N,) with NaN where the line is broken, and its range.

    `low` and `high` (N,) are of the lowest and highest seed.
    """

    run: str
    x: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def has_band(self) -> bool:
        """Whether its seeds differ."""
        return bool((self.low < self.high).any())


@dataclass(frozen=True)
class Panel:
    """One quantity of all the runs that have it."""

    name: str
    lines: tuple[PanelLine, ...]

    def svg(
        self, x_title: str, x_range: tuple[float, float], styles: Mapping[str, RunStyle]
    ) -> Markup:
        """The chart, with x from the first to the last of `x_range`; empty without any value."""
        lines = [one for one in self.lines if np.isfinite(one.mean).any()]
        if not lines:
            return Markup("")
        looks = {one.run: styles[one.run] for one in lines}
        rows = [row for one in lines for row in _rows(one, looks[one.run])]
        x_axis = {"title": x_title, "tickMinStep": 1, "tickCount": 8, "format": "~d"}
        y = {"field": "y", "type": "quantitative"}
        y_axis = {"title": None, "tickCount": 5, "format": ".4~g"}
        line = {
            "mark": {"type": "line", "strokeWidth": 1.4, "strokeJoin": "round"},
            "encoding": {
                "y": {**y, "scale": {"zero": False}, "axis": y_axis},
                "strokeDash": nominal("run", {one.id: dashes(one.dash) for one in looks.values()}),
            },
        }
        # The marker of each run at the end of its line tells runs apart in grey.
        shapes = {one.id: one.marker for one in looks.values() if one.marker is not None}
        last = {row["run"]: row for row in rows if row["run"] in shapes and row["y"] is not None}
        ends = {
            "data": {"values": [*last.values()]},
            "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
            "encoding": {"y": y, "shape": nominal("run", shapes)},
        }
        spec = {
            "width": _WIDTH,
            "height": _HEIGHT,
            "data": {"values": rows},
            "encoding": {
                "x": quantity("x", x_range, x_axis),
                "color": nominal("run", {one.id: one.colour for one in looks.values()}),
                "description": {"field": "run"},
            },
            "layer": [*([_BAND] if any(one.has_band for one in lines) else []), line, ends],
        }
        about = "; ".join(f"{one.run} ends at {_last(one):.4g}" for one in lines)
        names = {style.id: name for name, style in looks.items()}
        return svg(spec, f"{self.name} over the steps", about, names)


_BAND = {
    "mark": {"type": "area", "opacity": 0.14},
    "encoding": {
        "y": {"field": "low", "type": "quantitative"},
        "y2": {"field": "high"},
        "opacity": {"value": 0.14},
    },
}


def _rows(one: PanelLine, style: RunStyle) -> list[dict[str, Any]]:
    columns = (one.x, one.mean, one.low, one.high)
    return [
        {"run": style.id} | dict(zip(("x", "y", "low", "high"), map(_short, values), strict=True))
        for values in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _last(one: PanelLine) -> float:
    return float(one.mean[np.isfinite(one.mean)][-1])
