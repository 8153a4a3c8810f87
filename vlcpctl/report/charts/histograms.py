"""Histograms of angles: two sides in each panel, all panels on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.style import ticks
from vlcpctl.report.charts.vega import panels, text_width
from vlcpctl.report.markup import Markup

SIDE_DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2))  # the second side, also in grey

_WIDTH, _HEIGHT = 190, 90
_KEEP = 0.999  # share of the angles that the chart shows; the tables have the rest


@dataclass(frozen=True)
class HistogramPanel:
    """A name and, for each side, (180,) percent of its angles in each degree."""

    name: str
    shares: tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Scale:
    """Tick marks of both axes, shared by charts that are to be compared."""

    degrees: list[float]
    percents: list[float]


@dataclass(frozen=True)
class HistogramChart:
    """The histograms of one run: its name in file names, title, caption, sides and panels."""

    name: str
    title: str
    caption: str
    run: str
    sides: tuple[str, str]
    panels: tuple[HistogramPanel, ...]
    scale: Scale


def scale_of(panels: Sequence[HistogramPanel]) -> Scale | None:
    """A scale that fits all panels; None if none of them has an angle."""
    every = [share for panel in panels for share in panel.shares if share.any()]
    if not every:
        return None
    return Scale(
        degrees=ticks(0, max(_reach(share) for share in every), 4),
        percents=ticks(0, max(float(share.max()) for share in every), 3),
    )


def histogram_panels(chart: HistogramChart) -> list[Markup]:
    """An `svg` for each panel, in order."""
    spec = {
        "data": {"values": _rows(chart)},
        "facet": {"field": "panel", "type": "ordinal", "header": None},
        "columns": 1,
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "spec": {"width": _WIDTH, "height": _HEIGHT, "layer": _layers(chart.scale)},
    }
    left = max(text_width(f"{mark:,g}") for mark in chart.scale.percents) + 8
    box = (-left, -8.0, left + _WIDTH + 18, 8 + _HEIGHT + 22.0)
    titles = [
        (f"{chart.title}, {one.name}", f"percent of the angles, {' and '.join(chart.sides)}")
        for one in chart.panels
    ]
    return panels(spec, box, titles)


def outline(share: NDArray[np.float64], scale: Scale) -> list[tuple[int, float]]:
    """(degree, percent) from which a curve steps to the next degree, closed by a zero."""
    shown = share[: int(scale.degrees[-1])].tolist()
    return [*enumerate(shown), (len(shown), 0.0)]


def _reach(share: NDArray[np.float64]) -> int:
    """The degree below which nearly all angles are."""
    return 1 + int(np.searchsorted(np.cumsum(share), _KEEP * share.sum()))


def _rows(chart: HistogramChart) -> list[dict[str, Any]]:
    return [
        {"panel": place, "side": side, "degree": degree, "percent": percent}
        for place, panel in enumerate(chart.panels)
        for side, share in enumerate(panel.shares)
        for degree, percent in outline(share, chart.scale)
    ]


def _layers(scale: Scale) -> list[dict[str, Any]]:
    sides = [0, 1]
    degrees = {"values": scale.degrees, "title": None, "labelExpr": "datum.label + '\u00b0'"}
    colours = {"domain": sides, "range": ["var(--run-1)", "var(--run-2)"]}
    dashes = {"domain": sides, "range": [list(dash) or [1, 0] for dash in SIDE_DASHES]}
    channels = {
        "x": {
            "field": "degree",
            "type": "quantitative",
            "scale": {"domain": [0, scale.degrees[-1]], "nice": False},
            "axis": degrees,
        },
        "y": {
            "field": "percent",
            "type": "quantitative",
            "scale": {"domain": [0, scale.percents[-1]], "nice": False},
            "axis": {"values": scale.percents, "title": None},
            "stack": None,
        },
        "color": {"field": "side", "type": "nominal", "legend": None, "scale": colours},
    }
    dash = {"field": "side", "type": "nominal", "legend": None, "scale": dashes}
    return [
        {
            "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.15},
            "encoding": channels,
        },
        {
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
            "encoding": {**channels, "strokeDash": dash},
        },
    ]
