"""Line charts of runs that were evaluated at few steps."""

from __future__ import annotations

from vlcpctl.report.charts.lines import Series, line_chart


def test_a_run_evaluated_at_its_start_only_has_a_chart() -> None:
    chart = line_chart("rm", [Series("a", "run-0", ((-1, 50.0, 50.0, 50.0),), is_level=False)])
    assert ">start</text>" in chart
