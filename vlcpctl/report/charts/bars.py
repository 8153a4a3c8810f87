"""Bars of the final score per task, a panel per run; a tick marks the score just learned."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.printable import printable
from vlcpctl.report.charts.style import RunStyle, ticks
from vlcpctl.report.charts.vega import panels, text_width
from vlcpctl.report.markup import Markup

_WIDTH = 190
_LINE, _GAP = 13, 6  # px: the height of a line of a label, and the space between two labels
_BAR, _TICK = 10, 15
_BREAK = "\n"
_LABEL = 24  # characters of a line; longer labels wrap


@dataclass(frozen=True)
class BarPanel:
    """One run: final and just-learned score per task, NaN where unknown."""

    name: str
    style: RunStyle
    final: tuple[float, ...]
    learned: tuple[float, ...]


@dataclass(frozen=True)
class BarChart:
    """The panels of the runs, which share the tasks: its name in file names, title, caption."""

    name: str
    title: str
    caption: str
    tasks: tuple[str, ...]
    panels: tuple[BarPanel, ...]

    @property
    def marks(self) -> list[float]:
        """The tick marks of the scores, for all panels."""
        values = [v for one in self.panels for v in (*one.final, *one.learned)]
        values = [value for value in values if not math.isnan(value)]
        return ticks(min([0.0, *values]), max([*values, 0.0]) or 1.0, 4)


def bar_panels(chart: BarChart) -> list[Markup]:
    """An `svg` for each run, in order, on one scale."""
    labels = [_BREAK.join(_lines(task)) for task in chart.tasks]
    lines = [line for label in labels for line in label.split(_BREAK)]
    row = _LINE * max(label.count(_BREAK) + 1 for label in labels) + _GAP
    left = max(map(text_width, lines)) + 8
    spec = {
        "data": {"values": _rows(chart, labels)},
        "facet": {"field": "panel", "type": "ordinal", "header": None},
        "columns": 1,
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "spec": {"width": _WIDTH, "height": {"step": row}, "layer": _layers(chart, labels)},
    }
    box = (-left, -4.0, left + _WIDTH + 24, 4 + row * len(labels) + 22.0)
    tasks = f"{len(labels)} tasks; bar: last model, tick: just after learning"
    return panels(spec, box, [(f"{one.name}: {chart.title}", tasks) for one in chart.panels])


def _lines(label: str) -> list[str]:
    return textwrap.wrap(printable(label), _LABEL) or [""]


def _rows(chart: BarChart, labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "panel": place,
            "id": one.style.id,
            "task": label,
            "final": None if math.isnan(final) else final,
            "learned": None if math.isnan(learned) else learned,
        }
        for place, one in enumerate(chart.panels)
        for label, final, learned in zip(labels, one.final, one.learned, strict=True)
    ]


def _layers(chart: BarChart, labels: Sequence[str]) -> list[dict[str, Any]]:
    scale = {"domain": [chart.marks[0], chart.marks[-1]], "nice": False}
    axis = {"values": chart.marks, "title": None, "grid": True}
    tasks = {"title": None, "labelExpr": "split(datum.label, '\\n')", "labelLineHeight": _LINE}
    y = {
        "field": "task",
        "type": "nominal",
        "axis": tasks,
        "scale": {"padding": 0, "domain": labels},
    }
    colours = {
        "domain": [one.style.id for one in chart.panels],
        "range": [one.style.colour for one in chart.panels],
    }
    colour = {"field": "id", "type": "nominal", "legend": None, "scale": colours}

    def x(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}

    return [
        {
            "mark": {"type": "bar", "height": _BAR, "opacity": 0.85},
            "encoding": {"y": y, "x": x("final"), "color": colour},
        },
        {
            "mark": {"type": "tick", "color": "var(--ink)", "thickness": 2, "size": _TICK},
            "encoding": {"y": y, "x": x("learned")},
        },
    ]
