"""Histograms of angles: two sides in each panel, all panels on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.style import RunStyle, ticks
from vlcpctl.report.charts.vega import dashes, nominal, panels, quantity, text_width
from vlcpctl.report.markup import Markup

SIDE_DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2))  # the second side, also in grey

_WIDTH, _HEIGHT = 190, 90
_SHADES = " .:-=+*#%@"  # of a line of text, from an empty bin to the fullest
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
    """The histograms of one run: its name in file names, title, run, sides and panels."""

    name: str
    title: str
    run: str
    style: RunStyle
    sides: tuple[str, str]
    panels: tuple[HistogramPanel, ...]
    scale: Scale

    @property
    def caption(self) -> str:
        """What its axes and lines are."""
        return (
            f"{self.run}: percent of the angles in each degree, per pair of steps. "
            f"Solid: {self.sides[0]}. Dashed: {self.sides[1]}."
        )

    @property
    def key(self) -> str:
        """The same for an axis that has no caption."""
        solid, dashed = self.sides
        return f"{self.title}: degrees, percent of the angles; solid: {solid}, dashed: {dashed}"

    @property
    def names(self) -> list[str]:
        """The names that it shows."""
        return [one.name for one in self.panels]

    def svgs(self) -> list[tuple[HistogramPanel, Markup]]:
        """Each panel with its `svg`, in order."""
        rows = [
            {"panel": place, "side": side, "degree": degree, "percent": percent}
            for place, panel in enumerate(self.panels)
            for side, share in enumerate(panel.shares)
            for degree, percent in outline(share, self.scale)
        ]
        degrees, percents = self.scale.degrees, self.scale.percents
        axis = {"values": degrees, "title": None, "labelExpr": "datum.label + '\u00b0'"}
        channels = {
            "x": quantity("degree", [0, degrees[-1]], axis),
            "y": {
                **quantity("percent", [0, percents[-1]], {"values": percents, "title": None}),
                "stack": None,
            },
            "color": nominal("side", {0: "var(--run-1)", 1: "var(--run-2)"}),
        }
        dash = nominal("side", {side: dashes(dash) for side, dash in enumerate(SIDE_DASHES)})
        layers = [
            {
                "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.15},
                "encoding": channels,
            },
            {
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
                "encoding": {**channels, "strokeDash": dash},
            },
        ]
        left = max(text_width(f"{mark:,g}") for mark in percents) + 8
        what = f"percent of the angles, {' and '.join(self.sides)}"
        titles = [(f"{self.title}, {one.name}", what) for one in self.panels]
        drawn = panels(rows, layers, titles, (_WIDTH, _HEIGHT), (left, 8, 18, 22))
        return list(zip(self.panels, drawn, strict=True))


def scale_of(panels: Sequence[HistogramPanel]) -> Scale | None:
    """A scale that fits all panels; None if none of them has an angle."""
    every = [share for panel in panels for share in panel.shares if share.any()]
    if not every:
        return None
    return Scale(
        degrees=ticks(0, max(_reach(share) for share in every), 4),
        percents=ticks(0, max(float(share.max()) for share in every), 3),
    )


def outline(share: NDArray[np.float64], scale: Scale) -> list[tuple[int, float]]:
    """(degree, percent) from which a curve steps to the next degree, closed by a zero."""
    shown = share[: int(scale.degrees[-1])].tolist()
    return [*enumerate(shown), (len(shown), 0.0)]


def _reach(share: NDArray[np.float64]) -> int:
    """The degree below which nearly all angles are."""
    return 1 + int(np.searchsorted(np.cumsum(share), _KEEP * share.sum()))


def histogram_line(values: np.ndarray, low: float, high: float, bins: int = 40) -> str:
    """A histogram of values from `low` to `high`, one character per bin, darker where fuller.

    Values outside the range count in the first or the last bin.

    >>> histogram_line(np.array([0.0, 0.1, 0.9, 0.9, 0.9]), 0.0, 1.0, bins=5)
    '*   @'
    """
    counts, _ = np.histogram(np.clip(values, low, high), bins, (low, high))
    darkest = len(_SHADES) - 1
    shade = np.ceil(counts * darkest / max(1, counts.max())).astype(int)
    return "".join(_SHADES[place] for place in shade)
