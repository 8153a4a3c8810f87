"""Charts show the numbers that they were given: bars, lines and points, read from their places."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest

from vlcpctl.report.charts import (
    GridChart,
    Line,
    LineChart,
    RunGrid,
    RunStyle,
    score_axes,
    styles,
)
from vlcpctl.report.drawn import _outline
from vlcpctl.report.training import loss_chart

STYLES = styles(["joint", *(f"run {place}" for place in range(20))], ["joint"])
ONE, TWO, GREY = STYLES["run 0"], STYLES["run 1"], STYLES["joint"]
NAN = float("nan")


def line(name: str, style: RunStyle, *points: tuple[float, ...], is_level: bool = False) -> Line:
    return Line(name, style, np.array(points).T, is_level)


A = line("a", ONE, (-1, 40.0, 38.0, 42.0), (0, 60.0, 55.0, 65.0), (1, 50.0, 50.0, 50.0))
B = line("b", TWO, (-1, 20.0, 20.0, 20.0), (0, 70.0, 70.0, 70.0), (1, 90.0, 90.0, 90.0))
LEVEL = line("joint", GREY, (0, 40.0, 40.0, 40.0), (1, 60.0, 60.0, 60.0), is_level=True)


def lines(*found: Line) -> LineChart:
    return LineChart("curves", "rm", "", ("after step", "R@mean"), found, **score_axes(found))


def found(svg: str, **wanted: object) -> list[ET.Element]:
    """The elements with these attributes."""
    return [
        one
        for one in ET.fromstring(svg).iter()
        if all(one.get(name.replace("_", "-")) == str(value) for name, value in wanted.items())
    ]


def points(path: ET.Element) -> list[tuple[float, float]]:
    pairs = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d", ""))
    return [(float(x), float(y)) for x, y in pairs]


def test_a_line_is_at_its_scores_and_its_axes_have_names() -> None:
    svg = lines(A).svg()
    assert ET.fromstring(svg).findtext("desc") == "a ends at 50"
    (path,) = found(svg, stroke=ONE.colour, data_run=ONE.number)
    assert points(path) == [(0, 250), (400, 50), (800, 150)]  # from 35 at 300 px to 65 at 0
    assert path.findtext("title") == "a"
    (band,) = found(svg, opacity=0.14)
    assert set(points(band)) == {(0, 270), (0, 230), (400, 100), (400, 0), (800, 150)}
    texts = {one.text for one in ET.fromstring(svg).iter("text")}
    assert texts >= {"start", "0", "1", "after step", "R@mean"}


def test_every_run_has_its_number_its_colour_and_its_dash() -> None:
    runs = [STYLES[f"run {place}"] for place in range(10)]
    svg = lines(*(Line(str(one.number), one, A.points) for one in runs)).svg()
    for style in runs:
        dash = {"stroke_dasharray": " ".join(map(str, style.dash))} if style.dash else {}
        assert len(found(svg, data_run=style.number, stroke=style.colour, **dash)) == 1
    assert len({(one.colour, one.marker, one.dash) for one in STYLES.values()}) == len(STYLES)


def test_axes_hold_every_score_and_start_at_zero_unless_that_wastes_half_the_chart() -> None:
    def marks(*values: float) -> tuple[float, ...]:
        shown = line("a", ONE, *((n, value, value, value) for n, value in enumerate(values)))
        assert "<svg" in lines(shown).svg()
        return tuple(score_axes([shown])["y_marks"])

    assert marks(20.0, 60.0)[0] == 0
    assert marks(40.0, 60.0)[0] > 30
    for values in ((0.0, 0.0), (1e12, -1e12), (1e-300, 2e-300), (50.0, 50.0)):
        low, *_, high = marks(*values)
        assert low <= min(values) <= max(values) <= high


def test_a_panel_for_each_run_has_the_band_of_all_and_no_level() -> None:
    shown = lines(A, B, LEVEL).panels()
    assert [one.lines[1].name for one in shown] == ["a", "b"]
    (band,) = found(shown[0].svg(), fill="var(--muted)", opacity=0.14)
    unit = 76 / 100
    for place, low, high in ((0, 20, 40), (75, 60, 70), (150, 50, 90)):
        ends = sorted(y for x, y in points(band) if x == place)
        assert ends == pytest.approx([76 - high * unit, 76 - low * unit], abs=0.1)
    (alone,) = lines(Line("a", ONE, A.points[:, :1])).panels()
    assert found(alone.svg(), fill=ONE.colour)  # a marker: a line of one point would be invisible


def test_bars_end_at_the_final_score_and_ticks_at_the_learned_one() -> None:
    long = "07-a name of a task that is much longer than any bar of the chart could be"
    values = np.array([[40.0, NAN], [60.0, 30.0]])
    grid = RunGrid("a", ONE, ("last", "learned"), ("one", long), values)
    ((_, svg),) = GridChart("n", "rm", "", (grid,), is_bars=True).bars()
    unit = 190 / 60  # px per point: the scale ends at the highest score, a learned one
    (bar,) = found(svg, fill=ONE.colour)
    (end,) = re.findall(r"H([\d.]+)v", bar.get("d", ""))
    assert float(end) == pytest.approx(40 * unit, abs=0.1)
    ticks = [points(one)[0][0] for one in found(svg, stroke="var(--ink)")]
    assert ticks == pytest.approx([60 * unit, 30 * unit], abs=0.1)
    texts = [str(one.text) for one in ET.fromstring(svg).iter("text")]
    assert long in " ".join(texts)  # wrapped, and not cut
    left = -float(ET.fromstring(svg).get("viewBox", "").split()[0])
    assert left > max(map(len, texts)) * 6


def test_a_histogram_is_stairs_over_its_degrees() -> None:
    shares = np.zeros(180)
    shares[[0, 1]] = 60.0, 40.0
    x, y, low, high = _outline(shares, 3.0)
    steps = [(0, 0), (0, 60), (1, 60), (1, 40), (2, 40), (2, 0), (3, 0), (3, 0)]
    assert list(zip(x, y, strict=True)) == steps
    assert not low.any()
    assert high.tolist() == y.tolist()


def test_a_line_of_a_loss_is_broken_where_a_value_is_missing() -> None:
    values, low = np.array([5.0, 4.0, NAN, 3.0, 2.0]), np.array([4.0, 4.0, NAN, 3.0, 2.0])
    for lowest, bands in ((values, 0), (low, 2)):
        drawn = Line("a", ONE, np.stack([np.arange(5.0), values, lowest, values]))
        svg = loss_chart("loss", "", ("task", ""), (drawn,), (0.0, 4.0)).svg()
        assert ET.fromstring(svg).findtext("desc") == "a ends at 2"
        (path,) = found(svg, stroke=ONE.colour)
        assert path.get("d", "").count("M") == 2
        assert [x for x, _ in points(path)] == [0, 80, 240, 320]
        assert all(below > above for (_, above), (_, below) in pairwise(points(path)))
        assert len(found(svg, opacity=0.14)) == bands
        marker = next(one for one in found(svg, fill=ONE.colour) if one.get("transform"))
        assert marker.get("transform", "").startswith("translate(320 160)")
