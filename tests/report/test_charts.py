"""Charts show the numbers that they were given, on the page and by matplotlib."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.eval_rows import merged_rows, own_rows, read_back, row

from vlcpctl.report import figures
from vlcpctl.report.angles import MEASURES
from vlcpctl.report.charts import GridChart, Line, LineChart, RunGrid, RunStyle, score_axes, styles
from vlcpctl.report.drawn import _outline
from vlcpctl.report.report import ReportRequest, build, identity
from vlcpctl.report.training import loss_chart
from vlcpctl.report.write import _charts, write_figures

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
    assert ET.fromstring(svg).findtext("desc") == "a: 50 at 1"
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
        assert ET.fromstring(svg).findtext("desc") == "a: 2 at 4"
        (path,) = found(svg, stroke=ONE.colour)
        assert path.get("d", "").count("M") == 2
        assert [x for x, _ in points(path)] == [0, 80, 240, 320]
        assert all(below > above for (_, above), (_, below) in pairwise(points(path)))
        assert len(found(svg, opacity=0.14)) == bands
        marker = next(one for one in found(svg, fill=ONE.colour) if one.get("transform"))
        assert marker.get("transform", "").startswith("translate(320 160)")


def _write(rows: list[dict[str, Any]], path: Path, name: str = "out") -> Path:
    path.mkdir(exist_ok=True)
    found, request = read_back(path / "r", rows), ReportRequest()
    write_figures(build(found, request), identity(found, request), path / name, force=False)
    return path / name


@pytest.mark.slow
def test_every_chart_is_written_in_three_formats_and_again_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    rows = [*own_rows(), *merged_rows(), *own_rows(run="a $x_1$ _b")]
    one, other = _write(rows, tmp_path / "a"), _write(rows[::-1], tmp_path / "b")
    files = set(json.loads((one / "figures.json").read_text())["files"])
    names = sorted({name.rpartition(".")[0] for name in files})
    ends = ("curves-one-column", "curves-two-columns", "heat-maps", "tasks")
    ends += ("stability-one-column", "stability-two-columns")
    assert [any(name.endswith(end) for name in names) for end in ends] == [True] * 6
    assert files == {path.name for path in one.iterdir()} - {"figures.json"}
    assert files == {f"{name}.{form}" for name in names for form in ("pdf", "svg", "png")}
    for name in files:
        assert (one / name).read_bytes() == (other / name).read_bytes()
    for name in names:
        width = 3.25 if name.endswith("one-column") else 6.75
        with Image.open(one / f"{name}.png") as picture:
            assert picture.width == pytest.approx(width * 300, abs=1)
        text = (one / f"{name}.svg").read_text()
        assert "<dc:date>" not in text
        data = (one / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in data  # fonts are embedded
        assert not re.search(rb"/CreationDate|/Type3", data)


def _charts_of(rows: list[Any]) -> list[Any]:
    return [chart for _, chart in _charts(build(rows, ReportRequest()))]


def test_a_point_of_a_run_is_what_it_learned_and_the_percentage_that_it_keeps(
    tmp_path: Path,
) -> None:
    joint = own_rows((*[()] * 2, (70.0, 70.0, 70.0)), run="joint", method="joint")
    rows = [*own_rows(), *own_rows(((60.0,), (60.0, 50.0)), run="all kept"), *joint]
    (chart,) = (one for one in _charts_of(read_back(tmp_path / "r", rows)) if _is_scatter(one))
    places = {one.name: one.means[:, 0].tolist() for one in chart.lines}
    # Of 60 and 40 learned, 40 and 42 are kept.
    by_hand = [(60 + 40 + 30) / 3, (100 * 40 / 60 + 100 * 42 / 40) / 2]
    assert places == {"ctp": pytest.approx(by_hand), "all kept": [55, 100]}
    style = next(one.style for one in chart.lines if one.name == "ctp")
    (point,) = found(chart.svg(), fill=style.colour, data_run=style.number)
    unit = 440 / (chart.x_marks[-1] - chart.x_marks[0])
    x = unit * (by_hand[0] - chart.x_marks[0])
    assert point.get("transform", "").startswith(f"translate({x:.1f} ")
    assert point.findtext("title") == "ctp"
    alone = read_back(tmp_path / "alone", own_rows())
    assert not any(map(_is_scatter, _charts_of(alone))), "one point is no comparison"


def _is_scatter(chart: Any) -> bool:
    return isinstance(chart, LineChart) and chart.name == "stability"


def test_every_measure_of_angles_is_drawn(tmp_path: Path) -> None:
    keys = ("sam_image", "sam_text", "ram_image", "ram_text", "imav_i2t", "imav_t2i")
    spatial = row(
        step=1,
        evaluator="spatial",
        protocol="angles",
        since={"run": "ctp", "step": 0, "checkpoint": "c0"},
        metrics={f"{key}_mean": 1.0 for key in keys},
        degrees={key: [5, 5] for key in keys},
    )
    charts = _charts_of(read_back(tmp_path / "r", [*own_rows(), spatial]))
    panels = [one for one in charts if isinstance(one, list)]
    assert len({one[0].name for one in panels}) == len(panels) == len(MEASURES)


def test_without_matplotlib_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(figures.UsageError, match=r"pip install matplotlib"):
        figures.require_matplotlib()
