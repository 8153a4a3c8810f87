"""Line charts: every run is drawn in its style, levels are flat, panels have their own run."""

from __future__ import annotations

import re

from vlcpctl.report.charts.lines import LineChart, Series, axes_of
from vlcpctl.report.charts.style import LEVEL_DASH, styles

STYLES = styles(["joint", *(f"run {place}" for place in range(20))], ["joint"])


def _chart(*series: Series) -> LineChart:
    return LineChart("curves", "rm", "rm", "", series)


def _series(count: int, steps: int = 4) -> list[Series]:
    return [
        Series(
            f"run {place}",
            STYLES[f"run {place}"],
            tuple((step, 60.0 - place - step, 59.0 - place, 61.0) for step in range(steps)),
        )
        for place in range(count)
    ]


def test_a_run_evaluated_at_its_start_only_has_a_chart() -> None:
    one = Series("a", STYLES["run 0"], ((-1, 50.0, 50.0, 50.0),))
    chart = _chart(one).svg()
    assert ">start</text>" in chart
    assert 'data-run="1"' in chart


def test_every_run_has_its_number_its_name_its_colour_and_its_dash() -> None:
    chart = _chart(*_series(10)).svg()
    for place in range(10):
        style = STYLES[f"run {place}"]
        line = re.search(rf"<path([^>]*)><title>run {place}</title>", chart)
        assert line is not None
        assert f'data-run="{style.number}"' in line[1]
        assert f'stroke="{style.colour}"' in line[1]
        dash = ",".join(map(str, style.dash or (1, 0)))
        assert f'stroke-dasharray="{dash}"' in line[1]


def test_a_level_is_dashed_across_the_whole_chart() -> None:
    level = Series("joint", STYLES["joint"], ((3, 70.0, 70.0, 70.0),), is_level=True)
    chart = _chart(level, *_series(1)).svg()
    dash = ",".join(map(str, LEVEL_DASH))
    (line,) = re.findall(rf'<line[^>]*stroke-dasharray="{dash}"[^>]*>', chart)
    assert 'x2="-800"' in line
    assert 'stroke="var(--muted)"' in line


def test_the_area_between_seeds_is_drawn_for_few_runs_only() -> None:
    assert _chart(*_series(3)).svg().count('opacity="0.13"') == 3
    assert 'opacity="0.13"' not in _chart(*_series(13)).svg()


def test_a_panel_for_each_run_but_not_for_levels() -> None:
    level = Series("joint", STYLES["joint"], ((3, 70.0, 70.0, 70.0),), is_level=True)
    panels = [svg for _, svg in _chart(level, *_series(3)).panels("rm")]
    assert [re.findall(r"<title>(.*?):", one) for one in panels] == [[f"run {n}"] for n in range(3)]
    for place, panel in enumerate(panels):
        assert panel.count(f'stroke="{STYLES[f"run {place}"].colour}"') == 1
    assert len(set(panels)) == 3


def test_axes_hold_scores_of_any_size() -> None:
    for values in ((0.0, 0.0), (1e12, -1e12), (1e-300, 2e-300), (50.0, 50.0)):
        points = tuple((step, value, value, value) for step, value in enumerate(values))
        axes = axes_of([Series("a", STYLES["run 0"], points)])
        assert axes.marks[0] <= min(values)
        assert axes.marks[-1] >= max(values)
        assert axes.marks[0] < axes.marks[-1]
        assert "<svg" in _chart(Series("a", STYLES["run 0"], points)).svg()
