"""Charts are drawn without a network, in the page's own colours, and hold nothing unneeded."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import vl_convert

from vlcpctl.core.errors import VlcpError
from vlcpctl.report.charts.bars import BarChart, BarPanel
from vlcpctl.report.charts.histograms import HistogramChart, HistogramPanel, scale_of
from vlcpctl.report.charts.style import styles
from vlcpctl.report.charts.vega import svg

SPEC: dict[str, Any] = {
    "data": {"values": [{"a": "x", "b": 1}, {"a": "y", "b": 2}]},
    "mark": {"type": "bar", "color": "var(--run-1)"},
    "encoding": {
        "x": {"field": "a", "type": "nominal"},
        "y": {"field": "b", "type": "quantitative"},
    },
}


def _bars(tasks: tuple[str, ...]) -> list[str]:
    values = tuple(float(place) for place in range(len(tasks)))
    panel = BarPanel("a", styles(["a"])["a"], values, values)
    return [svg for _, svg in BarChart("n", "rm per task", "", tasks, (panel,)).svgs()]


def test_a_chart_has_a_name_and_the_colours_of_the_page() -> None:
    chart = svg(SPEC, "A <title>", "What it shows")
    assert "<title>A &lt;title&gt;</title>" in chart
    assert 'fill="var(--run-1)"' in chart
    assert "<desc>What it shows</desc>" in chart
    assert not re.search(r'#[0-9a-f]{3,6}\b|font-family|aria-|class="|id="|clip-path', chart)


def test_the_same_chart_has_the_same_bytes() -> None:
    assert svg(SPEC, "t", "d") == svg(SPEC, "t", "d")


def test_a_chart_does_not_fetch_its_data() -> None:
    with pytest.raises(VlcpError, match=r"(?i)cannot draw .*(url|denied|allowed|external)"):
        svg({**SPEC, "data": {"url": "http://localhost:9/a.json"}}, "t", "d")


def test_a_panic_of_the_engine_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> str:
        raise PanicException("called `Result::unwrap()`: Too many open files")

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", panic)
    with pytest.raises(VlcpError, match=r"cannot draw the charts: called .*: Too many"):
        svg(SPEC, "t", "d")


def test_vl_convert_is_imported_for_a_chart_only() -> None:
    program = (
        "import sys, vlcpctl.report.build, vlcpctl.report.render.page;"
        "sys.exit(any(name in sys.modules for name in ('vl_convert', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_names_of_tasks_wrap_and_none_is_cut() -> None:
    long = "07-a name of a task that is much longer than any bar of the chart could be"
    (chart,) = _bars(("00-week-01", long))
    texts = re.findall(r">([^<>]+)</t(?:ext|span)>", chart)
    assert "00-week-01" in texts
    assert long in " ".join(texts)
    (left,) = re.findall(r'viewBox="-([\d.]+) ', chart)
    assert float(left) > max(len(text) for text in texts) * 6


def test_a_task_without_scores_has_a_row_without_a_bar() -> None:
    nan = float("nan")
    panel = BarPanel("a", styles(["a"])["a"], (10.0, nan), (20.0, nan))
    ((_, chart),) = BarChart("n", "rm", "", ("one", "two"), (panel,)).svgs()
    assert ">two<" in chart
    assert chart.count('fill="var(--run-1)"') == 1


def test_histograms_tell_their_sides_apart_in_grey() -> None:
    shares = (np.zeros(180), np.zeros(180))
    shares[0][3:6], shares[1][10:20] = 33.3, 10.0
    panel = HistogramPanel("0 -> 1", shares)
    scale = scale_of([panel])
    assert scale is not None
    chart = HistogramChart(
        "n", "t", "a", styles(["a"])["a"], ("images", "texts"), (panel, panel), scale
    )
    found = [svg for _, svg in chart.svgs()]
    assert len(found) == 2
    assert 'stroke-dasharray="4,2"' in found[0]
