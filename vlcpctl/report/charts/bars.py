"""Bars of the final score per task, a panel per run; a tick marks the score just learned."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from vlcpctl.core.printable import printable
from vlcpctl.report.charts.style import RunStyle, ticks
from vlcpctl.report.charts.vega import nominal, panels, quantity, text_width
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

    @property
    def highest(self) -> float:
        """The largest of the final scores; 1 if none is positive."""
        values = [value for one in self.panels for value in one.final if not math.isnan(value)]
        return max([*values, 0.0]) or 1.0

    @property
    def key(self) -> str:
        """What bars and ticks are, for an axis that has no caption."""
        return f"{self.title}; tick: just after learning it"

    @property
    def names(self) -> list[str]:
        """The names of runs and of tasks that it shows."""
        return [*(one.name for one in self.panels), *self.tasks]

    def svgs(self) -> list[tuple[BarPanel, Markup]]:
        """Each run with its `svg`, in order, on one scale."""
        wrapped = [textwrap.wrap(printable(task), _LABEL) or [""] for task in self.tasks]
        labels = [_BREAK.join(lines) for lines in wrapped]
        rows = [
            {
                "panel": place,
                "id": one.style.id,
                "task": label,
                "final": None if math.isnan(final) else final,
                "learned": None if math.isnan(learned) else learned,
            }
            for place, one in enumerate(self.panels)
            for label, final, learned in zip(labels, one.final, one.learned, strict=True)
        ]
        scores = {"values": self.marks, "title": None, "grid": True}
        names = {"title": None, "labelExpr": "split(datum.label, '\\n')", "labelLineHeight": _LINE}
        y = {"field": "task", "type": "nominal", "axis": names}
        y["scale"] = {"padding": 0, "domain": labels}
        colour = nominal("id", {one.style.id: one.style.colour for one in self.panels})
        layers = [
            {
                "mark": {"type": "bar", "height": _BAR, "opacity": 0.85},
                "encoding": {
                    "y": y,
                    "x": quantity("final", self.marks, scores),
                    "color": colour,
                },
            },
            {
                "mark": {"type": "tick", "color": "var(--ink)", "thickness": 2, "size": _TICK},
                "encoding": {"y": y, "x": quantity("learned", self.marks, scores)},
            },
        ]
        height = (_LINE * max(map(len, wrapped)) + _GAP) * len(labels)
        left = max(text_width(line) for lines in wrapped for line in lines) + 8
        tasks = f"{len(labels)} tasks; bar: last model, tick: just after learning"
        titles = [(f"{one.name}: {self.title}", tasks) for one in self.panels]
        drawn = panels(rows, layers, titles, (_WIDTH, height), (left, 4, 24, 22))
        return list(zip(self.panels, drawn, strict=True))
