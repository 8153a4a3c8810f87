"""The section of calibration: only of rows with probabilities, by run, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import current, read_back, row

from vlcpctl.report.page import page
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.table import Table
from vlcpctl.report.write import markdown

Rows = list[dict[str, Any]]


def _probabilities(recall: float, precision: float, calibrated: float) -> dict[str, float]:
    found = {"pair_recall": recall, "pair_precision": precision}
    return {"rm": 50.0, **found, "pair_calibration": calibrated}


def _rows(steps: int = 2) -> Rows:
    """A run that loses 10, 3 and 20 points a step of the three metrics, and its start."""
    start = {"run": "base", "method": "imported", "checkpoint": "S", "step": None}
    found: Rows = current([row(task="golden", task_step=None, **start)], start="S", config=None)
    found[0]["metrics"] = _probabilities(85.0, 75.0, 95.0)
    for step in range(steps):
        measured = _probabilities(80.0 - 10 * step, 70.0 - 3 * step, 90.0 - 20 * step)
        rows = [row(step=step, task_step=task) for task in range(step + 1)]
        rows.append(row(step=step, task="golden", task_step=None))
        found += current([one | {"metrics": measured} for one in rows], start="S")
    return found


def _document(path: Path, rows: Rows, **fields: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**fields))


def _table(document: Document) -> Table:
    ((heading, (table,)),) = document.calibration_sections()
    assert heading == "Calibration"
    return table


def _cells(table: Table) -> dict[tuple[str, str], list[str]]:
    return {
        (group.name, line[0].text): [cell.text for cell in line[1:]]
        for group in table.groups
        for line in group.rows
    }


def test_guards_and_tasks_have_the_start_the_step_before_and_the_last_model(
    tmp_path: Path,
) -> None:
    table = _table(_document(tmp_path, _rows()))
    assert [one.title for one in table.columns[1:4]] == [
        *("recall: start", "recall: before", "recall: last")
    ]
    assert _cells(table) == {
        ("ctp", "golden"): [
            *("85.00", "80.00", "70.00", "75.00", "70.00", "67.00", "95.00", "90.00", "70.00")
        ],
        ("ctp", "00-smileys"): [
            "-",
            "80.00",
            "70.00",
            "-",
            "70.00",
            "67.00",
            "-",
            "90.00",
            "70.00",
        ],
        ("ctp", "01-people"): ["-", "-", "70.00", "-", "-", "67.00", "-", "-", "70.00"],
    }


def test_every_format_has_the_section_and_a_terminal_its_columns(tmp_path: Path) -> None:
    document = _document(tmp_path, _rows())
    assert "## Calibration" in markdown(document)
    assert "| *ctp* |" in markdown(document).partition("## Calibration")[2]
    assert "<h2>Calibration</h2>" in page(document)
    assert "Calibration" in dict(document.terminal_sections())
