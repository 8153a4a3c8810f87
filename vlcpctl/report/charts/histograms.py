"""Histograms of angles: two sides in each panel, panels side by side on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.frame import colour, label, line, shortened, svg, text_width, ticks
from vlcpctl.report.markup import Markup, element, joined

_WIDTH, _GAP, _ACROSS = 1100, 24, 4
_LEFT, _TOP, _LEGEND, _HEIGHT, _BOTTOM = 34, 20, 22, 96, 26
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
class _Frame:
    """Position, width and scale of a panel."""

    x: float
    y: float
    width: float
    scale: Scale

    def across(self, degree: float) -> float:
        return self.x + self.width * degree / self.scale.degrees[-1]

    def up(self, percent: float) -> float:
        return self.y + _HEIGHT * (1 - percent / self.scale.percents[-1])


def scale_of(panels: Sequence[HistogramPanel]) -> Scale | None:
    """A scale that fits all panels; None if none of them has an angle."""
    every = [share for panel in panels for share in panel.shares if share.any()]
    if not every:
        return None
    return Scale(
        degrees=ticks(0, max(_reach(share) for share in every), 4),
        percents=ticks(0, max(float(share.max()) for share in every), 3),
    )


def histograms(
    title: str, sides: tuple[str, str], panels: Sequence[HistogramPanel], scale: Scale
) -> Markup:
    """The histograms as one chart with a legend of the two sides."""
    lines = math.ceil(len(panels) / _ACROSS)
    across = math.ceil(len(panels) / lines)
    width = min((_WIDTH - across * _GAP) / across - _LEFT, 300)
    tall = _TOP + _HEIGHT + _BOTTOM
    parts = [_legend(sides)]
    for place, panel in enumerate(panels):
        x = _LEFT + (place % across) * (_LEFT + width + _GAP)
        y = _LEGEND + (place // across) * tall + _TOP
        parts.append(_panel(panel, _Frame(x, y, width, scale)))
    size = (across * (_LEFT + width + _GAP), _LEGEND + lines * tall)
    description = (
        f"{len(panels)} panels; percent of the angles in each degree, {' and '.join(sides)}"
    )
    return svg(title, description, size, *parts)


def _reach(share: NDArray[np.float64]) -> int:
    """The degree below which nearly all angles are."""
    return 1 + int(np.searchsorted(np.cumsum(share), _KEEP * share.sum()))


def _legend(sides: tuple[str, str]) -> Markup:
    parts, x = [], float(_LEFT)
    for number, side in enumerate(sides):
        parts.append(line(x, 9, x + 18, 9, f"curve {colour(number)}"))
        parts.append(label(side, x + 23, 13, f"name {colour(number)}"))
        x += 23 + text_width(side) + 18
    return joined(*parts)


def _panel(panel: HistogramPanel, frame: _Frame) -> Markup:
    floor = frame.up(0)
    right = frame.x + frame.width
    grid = [
        line(frame.x, frame.up(mark), right, frame.up(mark), "grid")
        for mark in frame.scale.percents
    ]
    scale = [
        label(f"{mark:g}", frame.x - 6, frame.up(mark) + 4, "tick", "end")
        for mark in frame.scale.percents
    ]
    below = [
        label(f"{mark:g}\u00b0", frame.across(mark), floor + 15, "tick", "middle")
        for mark in frame.scale.degrees
    ]
    name = label(shortened(panel.name, frame.width), frame.x, frame.y - 7, "panel")
    sides = [_outline(share, number, frame) for number, share in enumerate(panel.shares)]
    return joined(name, *grid, *scale, *below, *sides)


def _outline(share: NDArray[np.float64], number: int, frame: _Frame) -> Markup:
    """The bars of all degrees, drawn as one outline."""
    if not share.any():
        return Markup("")
    shown = share[: int(frame.scale.degrees[-1])]
    points = [(0, 0.0)]
    for degree, percent in enumerate(shown):
        points += [(degree, float(percent)), (degree + 1, float(percent))]
    points.append((len(shown), 0.0))
    path = " ".join(f"{frame.across(x):.1f},{frame.up(y):.1f}" for x, y in points)
    area = element("polygon", points=path, class_=f"band {colour(number)}")
    return joined(area, element("polyline", points=path, class_=f"curve {colour(number)}"))
