"""The tables that papers print: groups, averages over seeds, bold best, dashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import OWN, merged_rows, own_rows, read_back, row

from vlcpctl.report.formats import styled
from vlcpctl.report.report import ReportRequest, build
from vlcpctl.report.table import Table, TableCell

JOINT = (*[()] * 2, (70.0, 70.0, 70.0))


def _tables(path: Path, rows: list[dict[str, Any]], **fields: Any) -> dict[str, Table]:
    document = build(read_back(path / "r", rows), ReportRequest(**fields))
    return {table.title: table for _, tables in document.sections() for table in tables}


def _row(table: Table, run: str) -> dict[str, TableCell]:
    found = next(row for group in table.groups for row in group.rows if row[0].text == run)
    return {column.name: cell for column, cell in zip(table.columns, found, strict=True)}


def test_forgetting_of_one_run_by_hand(tmp_path: Path) -> None:
    table = _tables(tmp_path, own_rows())["Forgetting in rm, own galleries"]
    found = {name: cell.text for name, cell in _row(table, "ctp").items()}
    assert found == {
        "run": "ctp",
        "own_learned": "43.33",
        "own_final": "37.33",
        "bwt_gem": "-9.00",
        "bwt_incclip": "-5.50",
        "forgetting_max": "9.00",
        "fr_dha": "14.17",
    }


def test_merged_scores_and_bwt_ctp_stand_together(tmp_path: Path) -> None:
    table = _tables(tmp_path, merged_rows())["Last model, merged gallery of all tasks"]
    found = _row(table, "ctp")
    assert (found["rm"].text, found["t2i_r1"].text, found["bwt_ctp"].text) == (
        "35.00",
        "17.50",
        "9.50",
    )


def test_joint_at_the_last_step_has_scores_and_no_forgetting(tmp_path: Path) -> None:
    tables = _tables(tmp_path, own_rows() + own_rows(JOINT, run="joint", method="joint"))
    found = _row(tables["Forgetting in rm, own galleries"], "joint")
    assert found["own_final"].text == "70.00"
    assert {found[name].text for name in ("bwt_gem", "forgetting_max", "fr_dha")} == {"-"}
    notes_ = tables["Forgetting in rm, own galleries"].readings
    assert "joint has no forgetting metrics: it was evaluated at its last step only" in notes_


def test_runs_stand_in_groups_the_weakest_first(tmp_path: Path) -> None:
    better = tuple(tuple(value + 5 for value in line) for line in OWN)
    buffer = {"policy": "ring", "size": 9}
    rows = own_rows(better, run="good") + own_rows(run="bad") + own_rows(JOINT, run="joint")
    rows += own_rows(run="er", method="seqf", buffer=buffer)
    table = _tables(tmp_path, rows)["Forgetting in rm, own galleries"]
    assert [(group.name, [row[0].text for row in group.rows]) for group in table.groups] == [
        ("Joint training (upper bound)", ["joint"]),
        ("Memory free", ["bad", "good"]),
        ("Memory buffer", ["er"]),
    ]
    assert _row(table, "er")["method"].text == "seqf, ring 9"


def test_the_matrix_shows_steps_by_tasks(tmp_path: Path) -> None:
    table = _tables(tmp_path, own_rows() + merged_rows())[
        "ctp: rm of each task (columns) after each task (rows)"
    ]
    lines = styled(table).plain.splitlines()
    assert lines[4].split() == ["00-smileys", "60.0", "60.0"]
    assert lines[6].split() == ["02-animals", "40.0", "42.0", "30.0", "35.0"]
    assert lines[8].split() == ["forgotten", "20.0", "-2.0"]


def test_scores_ahead_of_learning_are_shown_faint(tmp_path: Path) -> None:
    ahead = row(step=0, task_step=1, metrics={"rm": 3.0, "t2i_r1": 1.0})
    table = _tables(tmp_path, [*own_rows(), ahead])[
        "ctp: rm of each task (columns) after each task (rows)"
    ]
    cell = table.groups[0].rows[0][2]
    assert (cell.text, cell.is_faint) == ("3.0", True)
