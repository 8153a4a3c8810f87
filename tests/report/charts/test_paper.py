"""Figures for papers show the numbers that they were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vlcpctl.report.charts import paper
from vlcpctl.report.charts.bars import BarChart, BarPanel
from vlcpctl.report.charts.heat_maps import HeatChart, HeatMap
from vlcpctl.report.charts.histograms import HistogramChart, HistogramPanel, scale_of
from vlcpctl.report.charts.lines import LineChart, Series
from vlcpctl.report.charts.style import styles

pytest.importorskip("matplotlib")

STYLES = styles([f"run {place}" for place in range(3)])
ONE = STYLES["run 0"]


def _axes(chart: paper.Chart) -> list[Any]:
    """The axes of the first figure of a chart."""
    with paper._style():
        _, draw = next(paper._figures(chart))
        return list(draw().axes)


def _bars(*tasks: str, panels: int = 1) -> BarChart:
    final, learned = (tuple(base + place for place in range(len(tasks))) for base in (40.0, 60.0))
    made = tuple(BarPanel(f"run {at}", STYLES[f"run {at}"], final, learned) for at in range(panels))
    return BarChart("tasks", "rm", "", tasks, made)


def test_bars_are_final_scores_from_the_first_task_down_and_ticks_are_learned_ones() -> None:
    axes = _axes(_bars("one", "two"))[0]
    assert [bar.get_width() for bar in axes.patches] == [40.0, 41.0]
    assert axes.collections[0].get_offsets().tolist() == [[60.0, 0.0], [61.0, 1.0]]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["one", "two"]
    bottom, top = axes.get_ylim()
    assert bottom > top  # the first task is the upper one


def test_many_panels_are_several_figures_with_every_run_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paper, "_MOST_PANELS", 2)
    chart = _bars("one", panels=3)
    with paper._style():
        figures = {name: draw() for name, draw in paper._figures(chart)}
    assert list(figures) == ["tasks-1", "tasks-3"]
    titles = [one.get_title(loc="left") for figure in figures.values() for one in figure.axes]
    assert [title for title in titles if title] == [f"run {place}" for place in range(3)]


def test_a_heat_map_has_steps_down_and_tasks_across() -> None:
    own = np.array([[60.0, np.nan, np.nan], [50.0, 40.0, np.nan]])
    one = HeatMap("ctp", ONE, (-1, 0), (0, 1, 2), own)
    axes = _axes(HeatChart("heat", "rm", "", (one,), 60.0))[0]
    assert np.array_equal(np.ma.filled(axes.images[0].get_array(), np.nan), own, equal_nan=True)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("task", "after step")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["start", "0"]
    assert axes.images[0].get_clim() == (0, 60.0)


def test_lines_are_means_with_a_band_over_the_seeds() -> None:
    points = ((-1, 40.0, 38.0, 42.0), (0, 60.0, 55.0, 65.0))
    level = Series("joint", STYLES["run 1"], ((3, 70.0, 70.0, 70.0),), is_level=True)
    series = (Series("a", ONE, points), level)
    axes = _axes(LineChart("curves", "rm", "rm", "", series))[0]
    line, flat = axes.lines
    assert line.get_xydata().tolist() == [[-1.0, 40.0], [0.0, 60.0]]
    assert set(flat.get_ydata()) == {70.0}
    (band,) = axes.collections
    assert {38.0, 42.0, 55.0, 65.0} <= set(band.get_paths()[0].vertices[:, 1].tolist())
    assert axes.get_xticklabels()[0].get_text() == "start"


def test_histograms_have_a_line_for_each_side() -> None:
    shares = (np.zeros(180), np.zeros(180))
    shares[0][3], shares[1][10] = 100.0, 50.0
    panel = HistogramPanel("0 -> 1", shares)
    scale = scale_of([panel])
    assert scale is not None
    chart = HistogramChart("n", "t", "a", ONE, ("images", "texts"), (panel,), scale)
    first, second = _axes(chart)[0].lines
    assert [max(line.get_ydata()) for line in (first, second)] == [100.0, 50.0]
    assert first.get_xdata()[int(np.argmax(first.get_ydata()))] == 3
    assert first.get_color() != second.get_color()
