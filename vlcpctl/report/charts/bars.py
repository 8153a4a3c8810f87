"""Bars of the final score per task, a panel per run; a tick marks the score just learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vlcpctl.report.charts.frame import label, line, shortened, svg, text_width, ticks
from vlcpctl.report.markup import Markup, element, joined

_ROW, _BAR = 19, 11
_TOP, _BOTTOM = 26, 24
_MOST_LABEL = 150
_WIDTH = 1100
_PANEL_GAP = 22
_ACROSS = 5  # the most panels in one line


@dataclass(frozen=True)
class BarPanel:
    """One run: final and just-learned score per task, NaN where unknown."""

    name: str
    css: str
    final: Sequence[float]
    learned: Sequence[float]


def bar_chart(title: str, tasks: Sequence[str], panels: Sequence[BarPanel]) -> Markup:
    """Panels side by side on one scale, with task names at the left of each line of panels."""
    left = min(_MOST_LABEL, max(text_width(task) for task in tasks)) + 10
    across = math.ceil(len(panels) / math.ceil(len(panels) / _ACROSS))
    lines = [panels[start : start + across] for start in range(0, len(panels), across)]
    panel_width = min((_WIDTH - left) / across - _PANEL_GAP, 320)
    values = [v for panel in panels for v in (*panel.final, *panel.learned) if not math.isnan(v)]
    marks = ticks(0, max(values, default=1.0), 4)
    tall = _TOP + len(tasks) * _ROW + _BOTTOM
    parts = []
    for index, members in enumerate(lines):
        parts.append(_task_names(tasks, left, index * tall))
        for place, panel in enumerate(members):
            at = (left + place * (panel_width + _PANEL_GAP), index * tall)
            parts.append(_panel(panel, at, panel_width, marks))
    width = left + across * (panel_width + _PANEL_GAP)
    description = (
        f"{len(panels)} runs by {len(tasks)} tasks; bar: last model, tick: just after learning"
    )
    return svg(title, description, (width, len(lines) * tall), *parts)


def _task_names(tasks: Sequence[str], left: float, top: float) -> Markup:
    return joined(
        *(
            label(
                shortened(task, left - 10),
                left - 10,
                top + _TOP + (place + 0.5) * _ROW + 4,
                "tick",
                "end",
            )
            for place, task in enumerate(tasks)
        )
    )


def _panel(panel: BarPanel, at: tuple[float, float], width: float, marks: list[float]) -> Markup:
    x, y = at
    floor = y + _TOP + len(panel.final) * _ROW

    def across(value: float) -> float:
        return x + width * max(value, 0.0) / marks[-1]

    grid = [line(across(mark), y + _TOP, across(mark), floor, "grid") for mark in marks]
    scale = [label(f"{mark:g}", across(mark), floor + 15, "tick", "middle") for mark in marks]
    bars = []
    for place, (final, learned) in enumerate(zip(panel.final, panel.learned, strict=True)):
        top = y + _TOP + place * _ROW + (_ROW - _BAR) / 2
        if not math.isnan(final):
            size = {"x": round(x, 1), "y": round(top, 1), "width": round(across(final) - x, 1)}
            bars.append(element("rect", **size, height=_BAR, class_=f"bar {panel.css}"))
        if not math.isnan(learned):
            bars.append(
                line(across(learned), top - 2, across(learned), top + _BAR + 2, "learned-tick")
            )
    name = label(shortened(panel.name, width), x, y + 14, "panel")
    return joined(name, *grid, *bars, *scale)
