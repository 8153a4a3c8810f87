"""What each task lost, by direction of retrieval, beside the means that reports have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import merged_rows, own_rows, read_back

from vlcpctl.report import tables as tables_of_tasks
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.table import Table
from vlcpctl.report.tables import stability_points

Rows = list[dict[str, Any]]
TITLE = "ctp: forgetting by task"


def both_ways(rows: Rows) -> Rows:
    """The rows with R@mean of both directions, of which text to image is half as good."""
    return [
        one
        | {
            "metrics": {
                "i2t_rmean": one["metrics"]["rm"],
                "t2i_rmean": one["metrics"]["rm"] / 2,
                "rm": one["metrics"]["rm"] * 3 / 4,
            }
        }
        for one in rows
    ]


def report(path: Path, rows: Rows) -> Document:
    return build(read_back(path / "r", rows), ReportRequest())


def table(document: Document, title: str = TITLE) -> Table:
    sections = document.sections(has_every_metric=True)
    (found,) = [one for _, tables in sections for one in tables if one.title == title]
    return found


def lines(found: Table) -> dict[str, list[str]]:
    return {
        row[0].text: [cell.line for cell in row[1:]] for group in found.groups for row in group.rows
    }


def test_each_task_has_both_directions_by_hand(tmp_path: Path) -> None:
    found = table(report(tmp_path, both_ways(own_rows())))
    assert [(one.over, one.name) for one in found.columns][1:6] == [
        ("i2t R@mean", "learned"),
        ("i2t R@mean", "final"),
        ("i2t R@mean", "forgotten"),
        ("i2t R@mean", "fr_dha"),
        ("t2i R@mean", "learned"),
    ]
    rows = lines(found)
    # 60 fell to 40, of which a third was lost, in both directions and their mean
    assert rows["00-smileys"] == [
        *("60.00", "40.00", "20.00", "33.33"),
        *("30.00", "20.00", "10.00", "33.33"),
        *("45.00", "30.00", "15.00", "33.33"),
    ]
    assert rows["01-people"][:4] == ["40.00", "42.00", "-2.00", "-5.00"]
    assert rows["02-animals"][:4] == ["30.00", "30.00", "-", "-"]
    assert rows["mean"][:4] == ["43.33", "37.33", "9.00", "14.17"]


def test_seeds_have_their_own_rates(tmp_path: Path) -> None:
    other = ((60.0,), (50.0, 40.0), (60.0, 42.0, 30.0))
    found = table(report(tmp_path, both_ways(own_rows() + own_rows(other, seed=1))))
    assert lines(found)["00-smileys"][2:4] == ["10.00 (14.14)", "16.67 (23.57)"]
    assert "mean and sample standard deviation, 2 seeds" in found.notes


def test_a_task_of_which_nothing_was_learned_has_no_rate(tmp_path: Path) -> None:
    nothing = ((0.0,), (50.0, 40.0), (40.0, 42.0, 30.0))
    rows = lines(table(report(tmp_path, both_ways(own_rows(nothing)))))
    assert rows["00-smileys"][2:4] == ["-40.00", "-"]
    assert rows["mean"][3] == "-"


def test_many_runs_do_not_fill_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_of_tasks, "_MOST_CELLS", 100)  # of 36 cells each
    rows = [one for run in "abc" for one in both_ways(own_rows(run=run))]
    sections = report(tmp_path, rows).sections(has_every_metric=True)
    found = [one for _, tables in sections for one in tables if "forgetting by task" in one.title]
    assert len(found) == 2
    assert found[-1].notes[-1] == "shows 2 of 3 runs; facts.csv has all"


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
