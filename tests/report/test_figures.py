"""--figures: every chart as PDF, SVG and PNG, the same bytes each time, or one line why not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.eval_rows import merged_rows, own_rows, read_back, row

from vlcpctl.report import figures
from vlcpctl.report.angles import MEASURES
from vlcpctl.report.report import ReportRequest, build, identity
from vlcpctl.report.write import _charts, write_figures

pytest.importorskip("matplotlib")

HOSTILE = "a $x_1$ _b"


def _write(rows: list[dict[str, Any]], path: Path, name: str = "out") -> Path:
    path.mkdir(exist_ok=True)
    found, request = read_back(path / "r", rows), ReportRequest()
    write_figures(build(found, request), identity(found, request), path / name, force=False)
    return path / name


@pytest.mark.slow
def test_every_chart_is_written_in_three_formats_and_again_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    rows = [*own_rows(), *merged_rows(), *own_rows(run=HOSTILE)]
    one, other = _write(rows, tmp_path / "a"), _write(rows[::-1], tmp_path / "b")
    names = json.loads((one / "figures.json").read_text())["figures"]
    ends = ("curves-one-column", "curves-two-columns", "heat-maps", "tasks")
    assert [any(name.endswith(end) for name in names) for end in ends] == [True] * 4
    files = {path.name for path in one.iterdir()} - {"figures.json"}
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


def test_guards_and_every_measure_of_angles_are_drawn(tmp_path: Path) -> None:
    outside = [
        row(step=step, task_step=None, task="coco", metrics={"rm": score})
        for step, score in ((None, 70.0), (0, 69.0), (1, 60.0), (2, 50.0))
    ]
    keys = ("sam_image", "sam_text", "ram_image", "ram_text", "imav_i2t", "imav_t2i")
    spatial = row(
        step=1,
        evaluator="spatial",
        protocol="angles",
        since={"run": "ctp", "step": 0, "checkpoint": "c0"},
        metrics={f"{key}_mean": 1.0 for key in keys},
        degrees={key: [5, 5] for key in keys},
    )
    charts = _charts_of(read_back(tmp_path / "r", [*own_rows(), *outside, spatial]))
    panels = [one for one in charts if isinstance(one, list)]
    titles = [one.title for one in charts if not isinstance(one, list)]
    assert any("R@mean after each step, on coco" in title for title in titles)
    assert len({one[0].name for one in panels}) == len(panels) == len(MEASURES)


def test_without_matplotlib_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(figures.UsageError, match=r"pip install matplotlib"):
        figures.require_matplotlib()
