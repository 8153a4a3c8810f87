"""Rows of zero-shot accuracy: IncCLIP's BWT over acc1, separate tables, transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import read_back, row

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


def test_a_metric_that_a_task_cannot_have_is_not_missing(tmp_path: Path) -> None:
    (track,) = build(read(tmp_path, chunk_rows(without_acc5=1)), ReportRequest()).tracks
    (run,) = track.runs
    assert run.summary("acc1", "own_final") is not None
    assert run.summary("acc5", "own_final") is None
    rows = [one for one in chunk_rows(without_acc5=1) if (one["step"], one["task_step"]) != (2, 1)]
    with pytest.raises(BadInput, match=r"has no acc1, mean_per_class_recall at \(step 2"):
        build(read(tmp_path, rows), ReportRequest())
