"""The tables that papers print: groups, averages over seeds, bold best, dashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import OWN, merged_rows, own_rows, read_back, row

from vlcpctl.report.formats import styled
from vlcpctl.report.report import ReportRequest, build
from vlcpctl.report.scores import Spread, score_notes
from vlcpctl.report.table import RowGroup, Table, TableCell, number_cell, with_best_marked

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


def test_every_metric_key_can_be_the_one_of_forgetting(tmp_path: Path) -> None:
    table = _tables(tmp_path, own_rows(), metric="t2i_r1")["Forgetting in t2i_r1, own galleries"]
    assert _row(table, "ctp")["bwt_gem"].text == "-4.50"


def test_seeds_are_averaged_with_their_spread(tmp_path: Path) -> None:
    other = tuple(tuple(value + 2 for value in line) for line in OWN)
    tables = _tables(tmp_path, own_rows() + own_rows(other, seed=1))
    table = tables["Last model, mean over the tasks' own galleries"]
    cell = _row(table, "ctp")["rm"]
    assert (cell.text, cell.sd) == ("38.33", "1.41")
    assert "mean and sample standard deviation, 2 seeds" in table.notes


def test_unequal_numbers_of_seeds_are_a_column(tmp_path: Path) -> None:
    tables = _tables(tmp_path, own_rows() + own_rows(seed=1) + own_rows(run="b"))
    table = tables["Forgetting in rm, own galleries"]
    assert [_row(table, run)["seeds"].text for run in ("ctp", "b")] == ["2", "1"]


def test_joint_at_the_last_step_has_scores_and_no_forgetting(tmp_path: Path) -> None:
    tables = _tables(tmp_path, own_rows() + own_rows(JOINT, run="joint", method="joint"))
    found = _row(tables["Forgetting in rm, own galleries"], "joint")
    assert found["own_final"].text == "70.00"
    assert {found[name].text for name in ("bwt_gem", "forgetting_max", "fr_dha")} == {"-"}
    notes_ = tables["Forgetting in rm, own galleries"].readings
    assert "joint has no forgetting metrics: it was evaluated at its last step only" in notes_


def test_one_task_has_no_forgetting(tmp_path: Path) -> None:
    found = _row(_tables(tmp_path, own_rows(OWN[:1]))["Forgetting in rm, own galleries"], "ctp")
    assert [found[name].text for name in ("own_learned", "own_final", "bwt_gem")] == [
        "60.00",
        "60.00",
        "-",
    ]


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


def test_the_best_is_bold_in_its_direction(tmp_path: Path) -> None:
    worse = (OWN[0], OWN[1], (10.0, 42.0, 30.0))
    rows = []
    for seed in range(3):
        rows += own_rows(seed=seed) + own_rows(worse, run="b", seed=seed)
    table = _tables(tmp_path, rows)
    found = _row(table["Forgetting in rm, own galleries"], "ctp")
    assert found["bwt_gem"].is_best
    assert found["forgetting_max"].is_best
    other = _row(table["Forgetting in rm, own galleries"], "b")
    assert not other["own_final"].is_best
    assert not other["run"].is_best


def test_a_run_alone_in_its_group_is_not_bold() -> None:
    group = RowGroup("", ((number_cell(Spread((1.0,))),),))
    assert with_best_marked((), group) is group


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


def test_transfer_is_a_table_of_its_own(tmp_path: Path) -> None:
    outside = [
        row(task="coco", task_step=None, step=step, metrics={"rm": 20.0 - step}) for step in (0, 2)
    ]
    tables = _tables(tmp_path, own_rows() + outside)
    (found,) = tables["Transfer: rm on data outside the stream"].groups[0].rows
    assert [cell.text for cell in found] == ["coco", "ctp", "0", "20.00", "2", "18.00", "-2.00"]
    forgetting = _row(tables["Forgetting in rm, own galleries"], "ctp")
    assert forgetting["own_final"].text == "37.33"


def test_forward_transfer_appears_with_rows_of_the_start(tmp_path: Path) -> None:
    start = [row(step=None, task_step=t, metrics={"rm": 1.0, "t2i_r1": 1}) for t in range(3)]
    ahead = [row(step=t - 1, task_step=t, metrics={"rm": 4.0, "t2i_r1": 1}) for t in range(1, 3)]
    table = _tables(tmp_path, start + own_rows() + ahead)["Forgetting in rm, own galleries"]
    assert _row(table, "ctp")["fwt_gem"].text == "3.00"
    without = _tables(tmp_path, own_rows())["Forgetting in rm, own galleries"]
    assert "fwt_gem" not in [column.name for column in without.columns]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (own_rows(OWN[:2], run="b"), "run 'b' has 2 of 3 steps"),
        (
            [one | {"task": f"x{one['task']}"} for one in own_rows(run="b")],
            "runs 'b' and 'ctp' were trained on different tasks",
        ),
    ],
)
def test_runs_that_do_not_compare_are_noted(
    tmp_path: Path, second: list[dict[str, Any]], said: str
) -> None:
    document = build(read_back(tmp_path / "r", own_rows() + second), ReportRequest())
    assert any(said in note for note in score_notes(document.tracks))
