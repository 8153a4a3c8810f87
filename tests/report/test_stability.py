"""What each run learned, and the share of it that it retains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import merged_rows, own_rows, read_back

from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.tables import stability_points


def report(path: Path, rows: list[dict[str, Any]]) -> Document:
    return build(read_back(path / "r", rows), ReportRequest())


def test_both_measures_by_hand(tmp_path: Path) -> None:
    ((point,), missing) = stability_points(report(tmp_path, own_rows()).tracks[0], "rm")
    assert point.plasticity.mean == pytest.approx((60 + 40 + 30) / 3)
    assert point.stability.mean == pytest.approx(100 * (40 + 42) / (60 + 40))
    assert missing == {}


def test_seeds_are_values(tmp_path: Path) -> None:
    rows = own_rows() + own_rows(((60.0,), (60.0, 40.0), (60.0, 40.0, 30.0)), seed=1)
    ((point,), _) = stability_points(report(tmp_path, rows).tracks[0], "rm")
    assert point.stability.values == (82.0, 100.0)


def test_runs_without_the_measures_say_why(tmp_path: Path) -> None:
    joint = own_rows((*[()] * 2, (70.0, 70.0, 70.0)), run="joint")
    nothing = own_rows(((0.0,), (0.0, 0.0), (0.0, 0.0, 1.0)), run="zero")
    points, missing = stability_points(report(tmp_path, joint + nothing).tracks[0], "rm")
    assert points == []
    assert missing == {
        "joint": "it was evaluated at its last step only",
        "zero": "scores are missing or zero",
    }
    points, missing = stability_points(report(tmp_path, merged_rows()).tracks[0], "rm")
    assert missing == {"ctp": "it has no rows on own galleries"}
