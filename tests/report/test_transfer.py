"""Scores on data outside the stream: every metric, after every step, with charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, own_rows, read_back, row

from vlcpctl.report import tables as report_tables
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.table import Table

Rows = list[dict[str, Any]]
KEYS = ("rm", "i2t_r1", "t2i_r10")
TITLE = "Transfer to coco, every metric after every step"


def outside(scores: Sequence[float], name: str = "coco", **fields: Any) -> Rows:
    return [
        row(task=name, task_step=None, step=step, **fields)
        | {"metrics": {key: score + n for n, key in enumerate(KEYS)}}
        for step, score in enumerate(scores)
    ]


def report(path: Path, rows: Rows, **options: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**options))


def tables(document: Document) -> dict[str, Table]:
    sections = document.sections(has_every_metric=True)
    return {one.title: one for _, found in sections for one in found}


def test_every_metric_and_step_of_each_data_set(tmp_path: Path) -> None:
    rows = own_rows() + outside([70, 60, 50]) + outside([40, 30, 20], "flickr")
    found = tables(report(tmp_path, rows))
    table = found[TITLE]
    assert [column.name for column in table.columns] == ["model", "rm", "i2t_r1", "t2i_r10"]
    assert [[cell.text for cell in line] for line in table.groups[0].rows] == [
        ["after 0", "70.00", "71.00", "72.00"],
        ["after 1", "60.00", "61.00", "62.00"],
        ["after 2", "50.00", "51.00", "52.00"],
    ]
    assert "Transfer to flickr, every metric after every step" in found


def test_the_model_at_the_start_is_the_first_line(tmp_path: Path) -> None:
    start = current(outside([80], run="clip", method="imported", checkpoint="S"))
    start = [one | {"step": None, "config": None} for one in start]
    rows = current(own_rows() + outside([70, 60, 50]), start="S")
    (group,) = tables(report(tmp_path, start + rows))[TITLE].groups
    assert [line[0].text for line in group.rows] == ["start", "after 0", "after 1", "after 2"]


def long_run(data_sets: int) -> Rows:
    """A run of 150 steps on these data sets."""
    tasks = [row() | {"step": n, "task_step": n, "task": f"{n:03d}"} for n in range(150)]
    tasks = [one | {"checkpoint": f"c{one['step']}"} for one in tasks]
    return tasks + [one for n in range(data_sets) for one in outside([50.0] * 150, f"data{n:02d}")]


def test_long_runs_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_tables, "_MOST_CELLS", 400)  # of 450
    found = tables(report(tmp_path, long_run(1), allow_missing=True))
    table = found["Transfer to data00, every metric after every step"]
    assert [line[0].text for line in table.groups[0].rows][2:4] == ["after 2", "after 143"]
    assert len(table.groups[0].rows) == 10
    assert "ctp: shows 10 of 150 steps" in table.notes


def test_many_data_sets_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_tables, "_MOST_CELLS", 24)  # two tables of twelve
    many = [one for n in range(3) for one in outside([1.0, 2.0, 3.0], f"data{n}")]
    found = tables(report(tmp_path, own_rows() + many))
    shown = [title for title in found if title.startswith("Transfer to")]
    assert len(shown) == 2
    assert "shows 2 of 3 data sets; facts.csv has all" in found[shown[-1]].notes
