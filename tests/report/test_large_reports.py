"""A report is as large as its rows warrant: long runs are cut with a note, absurd rows refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.collected import facts_of
from support.eval_rows import current, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.report.report import ReportRequest, build, identity
from vlcpctl.report.write import write_report


def _row(step: int, task: int, **fields: Any) -> dict[str, Any]:
    about = {"step": step, "checkpoint": f"c{step}", "task_step": task, "task": f"t{task}"}
    return row(**about | fields)


def _weekly(steps: int) -> list[dict[str, Any]]:
    """Each week's model on its own week and the first, the last model on all."""
    cells = {(step, task) for step in range(steps) for task in (0, step)}
    cells |= {(steps - 1, task) for task in range(steps)}
    return current([_row(step, task) for step, task in sorted(cells)])


def test_one_row_of_a_late_step_costs_nothing(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", current([_row(0, 0), _row(999, 999)]))
    started = time.process_time()
    with pytest.raises(BadInput, match=r"and \d+ more; evaluate them, or use --allow-missing"):
        build(rows, ReportRequest())
    request = ReportRequest(allow_missing=True)
    document = build(rows, request)
    assert write_report(document, identity(rows, request), tmp_path / "out", force=False)
    assert time.process_time() - started < 10
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 200_000
    found = facts_of(document, "score")
    assert [(one["step"], one["data"], one["value"]) for one in found] == [
        ("0", "t0", 50.0),
        ("999", "t999", 50.0),
    ]


def test_a_thousand_weeks_make_a_report_of_some_megabytes(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", _weekly(1000))
    request = ReportRequest(allow_missing=True)
    started = time.process_time()
    document = build(rows, request)
    assert write_report(document, identity(rows, request), tmp_path / "out", force=False)
    assert time.process_time() - started < 20
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) < 20_000_000
    note = "shows 100 of 1000 steps and 100 of 1000 tasks"
    assert note in (tmp_path / "out/report.html").read_text()
    assert note in (tmp_path / "out/report.md").read_text()


def test_matrices_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    runs = [_row(999, 999, run=f"r{number}") for number in range(250)]
    found = read_back(tmp_path / "r", runs)
    with pytest.raises(BadInput, match="250000000 cells of score matrices"):
        build(found, ReportRequest(allow_missing=True))


def test_the_id_of_rows_is_of_all_their_fields_and_of_no_order(tmp_path: Path) -> None:
    usual = [_row(0, 0), _row(1, 1)]
    changes = ({"data": "d9"}, {"seed": 9}, {"metrics": {"rm": 9.0}}, {"n_images": 9})
    every = [usual, *([usual[0] | one, usual[1]] for one in changes)]
    ids = [
        identity(read_back(tmp_path / str(number), rows), ReportRequest())["rows"]
        for number, rows in enumerate([*every, usual[::-1]])
    ]
    assert ids[0] == ids[-1]
    assert len(set(ids)) == len(every)
