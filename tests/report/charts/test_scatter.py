"""The scatter chart: every point is drawn, and names do not cover each other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from vlcpctl.report.charts import scatter
from vlcpctl.report.charts.scatter import ScatterChart, ScatterPoint
from vlcpctl.report.charts.style import styles
from vlcpctl.report.charts.vega import FONT, text_width

TITLES = ("plasticity", "stability")


def _chart(places: list[tuple[float, float]]) -> ScatterChart:
    looks = styles([f"run-{number}" for number in range(len(places))])
    points = tuple(
        ScatterPoint(name, style, (x - 1, x, x + 1), (y, y, y))
        for (name, style), (x, y) in zip(looks.items(), places, strict=True)
    )
    return ScatterChart("t", "", TITLES, points)


def test_every_run_is_named_and_described() -> None:
    chart = _chart([(10.0, 80.0), (30.0, 40.0)])
    root = ET.fromstring(chart.svg())
    texts = {node.text for node in root.iter("text")}
    assert {"run-0", "run-1", *TITLES} <= texts
    assert chart.unnamed == 0
    assert root.findtext("desc") == "plasticity, stability: run-0 10.00, 80.00; run-1 30.00, 40.00"


def test_names_do_not_cover_each_other() -> None:
    places = [(100.0 + 3 * number, 100.0 + 2 * (number % 3)) for number in range(12)]
    names = [f"a run {number}" for number in range(12)]
    labels = scatter.labels(names, places)
    boxes = [
        (left, middle - FONT / 2, left + text_width(names[number]), middle + FONT / 2)
        for number, (left, middle) in labels.items()
    ]
    assert len(boxes) > 3
    for place, one in enumerate(boxes):
        assert not any(scatter._overlap(one, other) for other in boxes[place + 1 :])


def test_names_without_room_are_reported() -> None:
    assert 0 < _chart([(10.0, 50.0)] * 40).unnamed < 40


@pytest.mark.parametrize("places", [[(0.0, 0.0)], [(5.0, 5.0), (5.0, 5.0)], [(1e9, -1e9)]])
def test_any_values_make_a_chart(places: list[tuple[float, float]]) -> None:
    ET.fromstring(_chart(places).svg())


def test_names_of_control_characters_make_a_chart() -> None:
    of = styles(["\x1b]0;x\x07", "\ud800"])
    points = tuple(ScatterPoint(one, of[one], (1, 1, 1), (at, at, at)) for at, one in enumerate(of))
    chart = ScatterChart("t", "", ("a\x1b", "b"), points).svg()
    assert {r"\x1b]0;x\x07", r"a\x1b"} <= {one.text for one in ET.fromstring(chart).iter("text")}


def test_the_names_of_a_scatter_are_readable_and_belong_to_their_runs() -> None:
    of = styles(["a", "b"])
    points = tuple(
        ScatterPoint(name, of[name], (1, 2, 3), (at, at, at)) for at, name in enumerate(of)
    )
    chart = ScatterChart("t", "", ("x", "y"), points).svg()
    found = re.findall(r"<text([^>]*)>[ab]<", chart)
    assert [('data-run="0"' in one, 'fill="var(--ink)"' in one) for one in found] == [
        (True, True),
        (False, True),
    ]
