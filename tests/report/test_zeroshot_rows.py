"""Rows of zero-shot accuracy: IncCLIP's BWT over acc1, separate tables, transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import own_rows, read_back, row

from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row
from vlcpctl.report.page import page
from vlcpctl.report.report import ReportRequest, build

ACC1 = ((60.0,), (50.0, 40.0), (40.0, 42.0, 30.0))
CHUNKS = {"evaluator": "zeroshot", "protocol": "all-classes", "split": "train", "stream": "s"}


def chunk_rows(without_acc5: int | None = None) -> list[dict[str, Any]]:
    """The accuracy on each training chunk after each step."""
    found = []
    for step, line in enumerate(ACC1):
        for task, value in enumerate(line):
            metrics = {"acc1": value, "acc5": value + 20, "mean_per_class_recall": value}
            if task == without_acc5:
                del metrics["acc5"]
            found.append(row(step=step, task_step=task, metrics=metrics, **CHUNKS))
    return found


def folder_rows(names: tuple[str, ...], value: float = 30.0) -> list[dict[str, Any]]:
    """The average over data sets outside the stream, after each step."""
    fields = {**CHUNKS, "split": "test", "stream": None, "task_step": None, "tasks": list(names)}
    return [
        row(step=step, task="average of 2", metrics={"acc1": value - step}, **fields)
        for step in range(3)
    ]


def read(path: Path, rows: list[dict[str, Any]]) -> list[Row]:
    return read_back(path / "rows", rows)


def test_bwt_is_incclips_over_the_chunks(tmp_path: Path) -> None:
    (track,) = build(read(tmp_path, chunk_rows()), ReportRequest()).tracks
    (run,) = track.runs
    found = run.summary("acc1", "bwt_incclip")
    assert found is not None
    # Equation in section 4.4, steps counted from 1: the mean over i of the mean drop on j <= i.
    drops = [
        sum(ACC1[i][j] - ACC1[j][j] for j in range(i + 1)) / (i + 1) for i in range(1, len(ACC1))
    ]
    assert found.mean == pytest.approx(sum(drops) / len(drops))
    assert found.mean == pytest.approx(-5.5)


def test_the_tables_are_about_acc1(tmp_path: Path) -> None:
    document = build(read(tmp_path, chunk_rows()), ReportRequest())
    ((title, tables),) = document.sections()
    assert title == "zeroshot, all-classes, train split"
    assert "Forgetting in acc1, own galleries" in [table.title for table in tables]


def test_evaluators_stand_in_tables_of_their_own(tmp_path: Path) -> None:
    rows = chunk_rows() + own_rows()
    document = build(read(tmp_path, rows), ReportRequest(fail_if=["bwt_incclip.acc1:lt:-10"]))
    assert [title for title, _ in document.sections()][:2] == [
        "retrieval, cross-modal, test split",
        "zeroshot, all-classes, train split",
    ]
    (verdict,) = document.verdicts
    assert (verdict.metric, verdict.holds) == ("bwt_incclip.acc1", False)


def test_data_outside_the_stream_alone_makes_a_report(tmp_path: Path) -> None:
    document = build(read(tmp_path, folder_rows(("cifar10", "dtd"))), ReportRequest())
    ((_, (table,)),) = document.sections()
    (cells,) = table.groups[0].rows
    assert [cell.text for cell in cells] == [
        *("average of 2", "ctp", "0", "30.00", "2", "28.00", "-2.00")
    ]
    shown = page(document)
    assert "average of 2" in shown
    assert ">1 run<" in shown


def test_averages_over_different_data_sets_are_not_mixed(tmp_path: Path) -> None:
    rows = folder_rows(("cifar10", "dtd")) + folder_rows(("food101", "dtd"), 60.0)
    ((_, (table,)),) = build(read(tmp_path, rows), ReportRequest()).sections()
    assert [cells[3].text for cells in table.groups[0].rows] == ["30.00", "60.00"]


def test_a_metric_that_a_task_cannot_have_is_not_missing(tmp_path: Path) -> None:
    (track,) = build(read(tmp_path, chunk_rows(without_acc5=1)), ReportRequest()).tracks
    (run,) = track.runs
    assert run.summary("acc1", "own_final") is not None
    assert run.summary("acc5", "own_final") is None
    rows = [one for one in chunk_rows(without_acc5=1) if (one["step"], one["task_step"]) != (2, 1)]
    with pytest.raises(BadInput, match=r"has no acc1, mean_per_class_recall at \(step 2"):
        build(read(tmp_path, rows), ReportRequest())
