"""Heat map of a task x step matrix; its framed diagonal is the score just after learning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.report.charts.frame import label, shortened, svg, text_width
from vlcpctl.report.markup import Markup, element, joined

_CELL_W, _CELL_H = 31, 21
_TOP = 18
_MOST_LABEL = 130
_MERGED_GAP = 10
_FAINTEST = 0.04  # opacity of a zero, so that its cell stays visible


@dataclass(frozen=True)
class HeatMapScores:
    """Labelled rows of own scores (steps, tasks), the merged ones, and the top of the scale.

    `steps` and `tasks` number the rows and columns; the model before the first task is step -1.
    `merged` has the score of each row on the merged gallery of its tasks.
    """

    labels: Sequence[str]
    steps: Sequence[int]
    tasks: Sequence[int]
    own: NDArray[np.float64]
    merged: NDArray[np.float64] | None
    highest: float


def heatmap(title: str, matrix: HeatMapScores) -> Markup:
    """The heat map of one run."""
    left = min(_MOST_LABEL, max(text_width(text) for text in matrix.labels)) + 8
    steps, tasks = matrix.own.shape
    beside = 0 if matrix.merged is None else _MERGED_GAP + _CELL_W + 14
    width = left + tasks * _CELL_W + beside + 2
    count = f"{sum(step >= 0 for step in matrix.steps)} steps by {tasks} tasks"
    description = f"{count}; the same numbers are in the table of this run"
    heads = [
        label(str(task), left + (place + 0.5) * _CELL_W, 12, "tick", "middle")
        for place, task in enumerate(matrix.tasks)
    ]
    if matrix.merged is not None:
        heads.append(
            label(
                "merged", left + tasks * _CELL_W + _MERGED_GAP + _CELL_W / 2, 12, "tick", "middle"
            )
        )
    rows = [_row(matrix, row, left) for row in range(steps)]
    return svg(title, description, (width, _TOP + steps * _CELL_H + 4), *heads, *rows)


def _row(matrix: HeatMapScores, row: int, left: float) -> Markup:
    y = _TOP + row * _CELL_H
    name = matrix.labels[row]
    text = element(
        "text",
        element("title", name),
        shortened(name, left - 8),
        x=round(left - 8, 1),
        y=y + 14.5,
        text_anchor="end",
        class_="tick",
    )
    cells = [
        _cell(
            float(matrix.own[row, place]),
            (left + place * _CELL_W, y),
            matrix.highest,
            _kind(matrix.steps[row], task),
        )
        for place, task in enumerate(matrix.tasks)
    ]
    if matrix.merged is not None and matrix.steps[row] >= 0:
        at = (left + len(matrix.tasks) * _CELL_W + _MERGED_GAP, y)
        cells.append(_cell(float(matrix.merged[row]), at, matrix.highest, "merged"))
    return joined(text, *cells)


def _kind(step: int, task: int) -> str:
    return "learned" if task == step else "future" if task > step else "past"


def _cell(value: float, at: tuple[float, float], highest: float, kind: str) -> Markup:
    x, y = at
    if math.isnan(value):
        absent = label("-", x + _CELL_W / 2, y + 14.5, "cell absent", "middle")
        return Markup("") if kind == "future" else absent
    share = min(max(value / highest, 0.0), 1.0)
    box = element(
        "rect",
        x=round(x + 0.75, 2),
        y=y + 0.75,
        width=_CELL_W - 1.5,
        height=_CELL_H - 1.5,
        rx=1.5,
        class_=f"heat {kind}",
        fill_opacity=round(_FAINTEST + (1 - _FAINTEST) * share, 3),
    )
    css = f"cell shade-{min(int(share * 10), 9)} {kind}"
    return joined(box, label(f"{value:.1f}", x + _CELL_W / 2, y + 14.5, css, "middle"))
