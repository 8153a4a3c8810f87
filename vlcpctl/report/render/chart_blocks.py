"""Charts with their captions and legends, as parts of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from vlcpctl.report.charts.bars import BarChart, bar_panels
from vlcpctl.report.charts.heat_maps import HeatChart, mini_map
from vlcpctl.report.charts.histograms import SIDE_DASHES, HistogramChart, histogram_panels
from vlcpctl.report.charts.legend import legend, sample
from vlcpctl.report.charts.lines import LineChart, line_chart, line_panels, panel_series
from vlcpctl.report.charts.style import RunStyle
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render.heat_table import heat_table
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, fixed

FEW_RUNS = 8  # more have small multiples beside the chart of all, and tables instead of bars
_FEW_TABLES, _FEW_TASKS = 6, 20  # matrices that are shown in full at once
_MOST_BARS = 40  # tasks


def lines_block(chart: LineChart, key: str, *, has_panels: bool = True) -> Markup:
    """The chart with its legend, the best at the top; of many runs also a small panel each."""
    drawn = line_chart(chart.title, chart.series)
    if not drawn:
        return drawn
    entries = [
        (one.name, one.style, one.is_level, f"{one.points[-1][1]:.1f}")
        for one in sorted(chart.series, key=lambda one: -one.points[-1][1] if one.points else 0)
        if one.points
    ]
    whole = element(
        "figure",
        element("div", drawn, class_="scroll"),
        legend(entries) if len(entries) > 1 else "",
        element("figcaption", chart.caption),
    )
    if not has_panels or len(chart.series) <= FEW_RUNS:
        return whole
    return joined(whole, _small_multiples(chart, key))


def _small_multiples(chart: LineChart, key: str) -> Markup:
    series = panel_series(chart.series)
    figures = [
        run_figure(one.name, one.style, drawn, f" {one.points[-1][1]:.1f}")
        for one, drawn in zip(series, line_panels(chart.series, key), strict=True)
    ]
    if not figures:
        return Markup("")
    note = (
        f"Each run by itself: {key} after each step. The grey area reaches from the lowest to the "
        "highest run."
    )
    return joined(
        element("p", note, class_="about"), element("div", *figures, class_="panels small")
    )


def run_figure(name: str, style: RunStyle | None, drawn: Markup, text: str = "") -> Markup:
    """A panel of one run, below its name, which page.js hides, sorts and groups with the run."""
    caption = element(
        "figcaption",
        "" if style is None or style.marker is None else sample(style),
        element("span", name, class_="name"),
        element("span", text, class_="value") if text else "",
    )
    return element("figure", caption, drawn, data_run=None if style is None else style.number)


def bars_block(chart: BarChart, styles: Mapping[str, RunStyle]) -> Markup:
    """Bars per task, a panel per run; of many runs or tasks a shaded table instead."""
    if len(chart.panels) > FEW_RUNS or len(chart.tasks) > _MOST_BARS:
        return _final_table(chart)
    figures = [
        run_figure(one.name, styles[one.name], drawn)
        for one, drawn in zip(chart.panels, bar_panels(chart), strict=True)
    ]
    return joined(
        element("div", *figures, class_="panels bars"),
        element("p", chart.caption, class_="about"),
    )


def _final_table(chart: BarChart) -> Markup:
    """The score of the last model: a row for each run, a column for each task."""
    columns = (Column("run", is_number=False), *map(Column, map(_head, chart.tasks)))
    rows = tuple(
        (
            TableCell(one.name),
            *(TableCell(_text(v), value=None if isnan(v) else v) for v in one.final),
        )
        for one in chart.panels
    )
    values = [v for one in chart.panels for v in one.final if not isnan(v)]
    table = Table(f"{chart.title}, own galleries", columns, (RowGroup("", rows),))
    return heat_table(table, max([*values, 0.0]) or 1.0)


def _head(task: str) -> str:
    """The number of a task, such as "07": names of many tasks are wider than their scores."""
    digits = task[: len(task) - len(task.lstrip("0123456789"))]
    return digits or task


def _text(value: float) -> str:
    return "-" if isnan(value) else fixed(value, 1)


def heat_block(
    chart: HeatChart, tables: Mapping[str, Table], styles: Mapping[str, RunStyle]
) -> Markup:
    """The matrix of each run: few and small ones as shaded tables, others as pictures.

    `tables` has the numbers of each run; below a picture they are folded.
    """
    is_small = len(chart.maps) <= _FEW_TABLES and all(
        len(one.tasks) <= _FEW_TASKS for one in chart.maps
    )
    figures = []
    for one in chart.maps:
        title = f"{one.run}: {chart.title}"
        numbers = heat_table(tables[one.run], chart.highest, has_caption=False)
        if not is_small:
            folded = element("details", element("summary", "Numbers"), numbers)
            numbers = joined(mini_map(title, one.own, chart.highest), folded)
        figures.append(run_figure(one.run, styles[one.run], numbers))
    return joined(
        element("div", *figures, class_="panels tables" if is_small else "panels maps"),
        element("p", chart.caption, class_="about"),
    )


def histograms_block(chart: HistogramChart, styles: Mapping[str, RunStyle]) -> Markup:
    """The histograms of one run, a panel for each pair of steps, and what the lines are."""
    figures = [
        element("figure", element("figcaption", panel.name), drawn)
        for panel, drawn in zip(chart.panels, histogram_panels(chart), strict=True)
    ]
    sides = element("ul", *_sides(chart.sides), class_="legend")
    return element(
        "figure",
        element("figcaption", chart.caption),
        sides,
        element("div", *figures, class_="panels angles"),
        data_run=styles[chart.run].number,
    )


def _sides(sides: Sequence[str]) -> list[Markup]:
    return [
        element("li", _line(number), element("span", side)) for number, side in enumerate(sides)
    ]


def _line(number: int) -> Markup:
    dash = " ".join(map(str, SIDE_DASHES[number])) or None
    path = element("path", d="M0 6h30", stroke=f"var(--run-{number + 1})", stroke_dasharray=dash)
    return element(
        "svg", path, viewBox="0 0 30 12", class_="sample", stroke_width="1.8", aria_hidden="true"
    )
