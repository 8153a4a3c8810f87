"""Charts show the numbers that they were given: bars, lines and points, read from their places."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from vlcpctl.report.charts import scatter
from vlcpctl.report.charts.bars import BarChart, BarPanel
from vlcpctl.report.charts.histograms import HistogramChart, HistogramPanel, scale_of
from vlcpctl.report.charts.lines import LineChart, Series, axes_of
from vlcpctl.report.charts.panels import Panel, PanelLine
from vlcpctl.report.charts.scatter import ScatterChart, ScatterPoint
from vlcpctl.report.charts.style import LEVEL_DASH, styles
from vlcpctl.report.charts.vega import FONT, text_width
from vlcpctl.report.render.templates import render

STYLES = styles([f"run {place}" for place in range(10)])
ONE, TWO = STYLES["run 0"], STYLES["run 1"]
NAN = float("nan")
A = Series("a", ONE, ((-1, 40.0, 38.0, 42.0), (0, 60.0, 55.0, 65.0), (1, 50.0, 50.0, 50.0)))
B = Series("b", TWO, ((-1, 20.0, 20.0, 20.0), (0, 70.0, 70.0, 70.0), (1, 90.0, 90.0, 90.0)))


def _lines(*series: Series) -> LineChart:
    return LineChart("curves", "rm", "rm", "", series)


def _points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", path)]


def _only(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return str(found)


def test_bars_end_at_the_final_score_and_ticks_at_the_learned_one() -> None:
    panel = BarPanel("a", ONE, (40.0, 20.0), (60.0, 30.0))
    ((_, chart),) = BarChart("n", "rm", "", ("one", "two"), (panel,)).svgs()
    unit = 190 / 60  # px per point: the scale ends at the highest score, a learned one
    bars = [
        float(one) for one in re.findall(r'M0,[\d.]+h([\d.]+)v.*? fill="var\(--run-1\)"', chart)
    ]
    ticks = [
        float(one) + 1 for one in re.findall(r'M([\d.]+),[\d.]+h2v15.*?fill="var\(--ink', chart)
    ]
    assert bars == pytest.approx([40 * unit, 20 * unit], abs=0.1)
    assert ticks == pytest.approx([60 * unit, 30 * unit], abs=0.1)


def test_a_line_is_at_its_scores_and_described_by_its_end() -> None:
    chart = _lines(A).svg()
    assert "<desc>a 50.0 after step 1</desc>" in chart
    line = _points(_only(r'<path d="([^"]*)" stroke=', chart))
    assert line == [(0, 250), (400, 50), (800, 150)]  # from 35 at 300 px to 65 at 0
    band = _points(_only(r'<path d="([^"]*)" fill="[^"]*" opacity="0.13"', chart))
    assert set(band) == {(0, 270), (0, 230), (400, 100), (400, 0), (800, 150)}


def test_a_level_is_the_score_of_its_last_step() -> None:
    level = Series("joint", TWO, ((0, 40.0, 40.0, 40.0), (1, 60.0, 60.0, 60.0)), is_level=True)
    chart = _lines(A, level).svg()
    dash = ",".join(map(str, LEVEL_DASH))
    place = _only(rf'<line transform="translate\([\d.]+,([\d.]+)\)"[^>]*dasharray="{dash}"', chart)
    assert float(place) == 50  # 60 between 35 at 300 px and 65 at 0


def test_axes_start_at_zero_unless_that_wastes_half_the_chart() -> None:
    def first(*values: float) -> float:
        points = tuple((step, value, value, value) for step, value in enumerate(values))
        return axes_of([Series("a", ONE, points)]).marks[0]

    assert first(20.0, 60.0) == 0
    assert first(40.0, 60.0) > 30


def test_the_band_of_panels_is_from_the_lowest_to_the_highest_run() -> None:
    panel = _lines(A, B).panels("rm")[0][1]
    band = _points(_only(r'<path d="([^"]*)" fill="var\(--muted\)"', panel))
    unit = 76 / 100
    for place, low, high in ((0, 20, 40), (75, 60, 70), (150, 50, 90)):
        found = sorted(y for x, y in band if x == place)
        assert found == pytest.approx([76 - high * unit, 76 - low * unit], abs=0.1)


def _histogram(images: dict[int, float], texts: dict[int, float]) -> HistogramPanel:
    shares = (np.zeros(180), np.zeros(180))
    for share, given in zip(shares, (images, texts), strict=True):
        for degree, percent in given.items():
            share[degree] = percent
    return HistogramPanel("x", shares)


def test_histograms_of_two_sides_have_two_colours_and_one_scale() -> None:
    panel = _histogram({3: 60.0, 4: 40.0}, {20: 70.0, 30: 29.95, 90: 0.05})
    scale = scale_of([panel])
    assert scale is not None
    assert scale.degrees == [0, 10, 20, 30, 40]  # 0.05 % of the angles are beyond it
    assert scale.percents[-1] == 100  # of the second side
    chart = HistogramChart("n", "t", "a", ONE, ("images", "texts"), (panel,), scale)
    ((_, found),) = chart.svgs()
    lines = re.findall(r'<path d="([^"]*)" stroke="var\(--run-(\d)\)"', found)
    assert [side for _, side in lines] == ["1", "2"]
    highest = [min(y for _, y in _points(path)) for path, _ in lines]
    assert highest == pytest.approx([90 * 0.4, 90 * 0.3], abs=0.1)


def _panel(values: list[float], low: list[float] | None = None) -> PanelLine:
    x = np.arange(float(len(values)))
    found = np.array(values)
    return PanelLine("a", x, found, np.array(low or values), found)


def test_a_line_of_a_panel_is_broken_where_a_value_is_missing() -> None:
    line = _panel([5.0, 4.0, NAN, 3.0, 2.0])
    chart = Panel("loss", (line,)).svg("task", (0.0, 4.0), {"a": ONE})
    assert "<desc>a ends at 2</desc>" in chart
    path = _only(r'<path d="([^"]*)" stroke=', chart)
    assert path.count("M") == 2
    points = _points(path)
    assert [x for x, _ in points] == [0, 80, 240, 320]
    assert all(below > above for (_, above), (_, below) in pairwise(points))
    marker = _only(r'<path transform="translate\(([^)]*)\)"', chart)
    assert marker == "320,160"
    assert "opacity" not in chart  # no band: there is one seed


def test_a_panel_has_a_band_where_seeds_differ() -> None:
    line = _panel([5.0, 4.0], [4.5, 4.0])
    chart = Panel("loss", (line,)).svg("task", (0.0, 1.0), {"a": ONE})
    assert 'opacity="0.14"' in chart


def test_points_of_a_scatter_are_at_their_means_with_a_line_over_the_seeds() -> None:
    points = (
        ScatterPoint("a", ONE, (10.0, 20.0, 40.0), (60.0, 70.0, 90.0)),
        ScatterPoint("b", TWO, (50.0, 50.0, 50.0), (10.0, 10.0, 10.0)),
    )
    whole = ScatterChart("t", "", ("x", "y"), points)
    assert whole.unnamed == 0
    chart = whole.svg()
    (at,) = re.findall(r'<path transform="translate\(([\d.]+),([\d.]+)\)"[^>]*data-run="0"', chart)
    assert tuple(map(float, at)) == pytest.approx((440 / 3, 90), abs=0.1)  # 20 of 60, 70 of 100
    lines = re.findall(
        r'<line transform="translate\(([\d.]+),([\d.]+)\)" x2="(-?[\d.]+)" y2="(-?[\d.]+)"'
        r'[^>]*data-run="0"',
        chart,
    )
    across, up = (tuple(map(float, one)) for one in lines)
    assert across == pytest.approx((73.3, 90, 220, 0), abs=0.1)  # from 10 to 40
    assert up == pytest.approx((146.7, 120, 0, -90), abs=0.1)  # from 60 to 90
    label = re.findall(r'<text transform="translate\(([\d.]+),([\d.]+)\)"[^>]*data-run="0"', chart)
    assert abs(float(label[0][1]) - 90) < 10  # beside its point


def test_a_name_does_not_cover_the_point_of_another_run() -> None:
    places = [(100.0, 150.0), (120.0, 150.0)]
    left, middle = scatter.labels(["a run", "b"], places)[0]
    box = (left, middle - FONT / 2, left + text_width("a run"), middle + FONT / 2)
    assert not scatter._overlap(box, (115.0, 145.0, 125.0, 155.0))


def test_a_legend_shows_each_run_as_it_is_drawn() -> None:
    dashed = STYLES["run 8"]
    entries = [("a", ONE, False, "51.2"), ("b", dashed, False, ""), ("joint", TWO, True, "")]
    first, second, third = re.findall(r"<li.*?</li>", render("charts.html", "legend", entries))
    assert 'data-run="0"' in first
    assert 'data-run="8"' in second
    assert '<span class="name">a</span><span class="value"> 51.2</span>' in first
    assert "stroke-dasharray" not in first
    assert f'stroke-dasharray="{" ".join(map(str, dashed.dash))}"' in second
    assert f'stroke-dasharray="{" ".join(map(str, LEVEL_DASH))}"' in third
    assert [one.count("<path") for one in (first, second, third)] == [2, 2, 1]  # line and marker
    assert first.count(f'fill="{ONE.colour}"') == 1
