"""Tables of a track: scores, forgetting, guards, benchmarks, calibration, the oracle, bold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import fact, facts_of, reported
from support.eval_rows import OWN, current, merged_rows, outside_rows, own_rows, row, start_rows

from vlcpctl.core.errors import UsageError
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.formats import styled, table_markdown
from vlcpctl.report.page import page
from vlcpctl.report.report import Document
from vlcpctl.report.scores import Spread
from vlcpctl.report.table import (
    Column,
    RowGroup,
    Table,
    TableCell,
    is_ahead,
    number_cell,
    with_best_marked,
)
from vlcpctl.report.write import markdown

JOINT = (*[()] * 2, (70.0, 70.0, 70.0))


def _tables(path: Path, rows: list[dict[str, Any]], **fields: Any) -> dict[str, Table]:
    document = reported(path, rows, **fields)
    return {table.title: table for _, tables in document.sections() for table in tables}


def _row(table: Table, run: str) -> dict[str, TableCell]:
    found = next(row for group in table.groups for row in group.rows if row[0].text == run)
    return {column.name: cell for column, cell in zip(table.columns, found, strict=True)}


def test_scores_and_forgetting_of_one_run_by_hand(tmp_path: Path) -> None:
    tables = _tables(tmp_path, own_rows() + merged_rows())
    found = _row(tables["Last model, merged gallery of all tasks"], "ctp")
    assert [found[name].text for name in ("rm", "t2i_r1", "bwt_ctp")] == ["35.00", "17.50", "9.50"]
    forgetting = _row(tables["Forgetting in rm, own galleries"], "ctp")
    found = {name: cell.text for name, cell in forgetting.items()}
    assert found == {
        "run": "ctp",
        "own_learned": "43.33",
        "own_final": "37.33",
        "bwt_gem": "-9.00",
        "bwt_incclip": "-5.50",
        "forgetting_max": "9.00",
        "fr_dha": "14.17",
    }


def test_runs_stand_in_groups_the_weakest_first(tmp_path: Path) -> None:
    better = tuple(tuple(value + 5 for value in line) for line in OWN)
    buffer = {"policy": "ring", "size": "5%"}
    rows = own_rows(better, run="good") + own_rows(run="bad") + own_rows(JOINT, run="joint-b")
    rows += own_rows(run="er", method="seqf", buffer=buffer)
    table = _tables(tmp_path, rows)["Forgetting in rm, own galleries"]
    assert [(group.name, [row[0].text for row in group.rows]) for group in table.groups] == [
        ("Joint training (upper bound)", ["joint-b"]),
        ("Memory free", ["bad", "good"]),
        ("Memory buffer", ["er"]),
    ]
    assert _row(table, "er")["method"].text == "seqf, ring 5%"
    found = _row(table, "joint-b")
    assert found["own_final"].text == "70.00"
    assert {found[name].text for name in ("bwt_gem", "forgetting_max", "fr_dha")} == {"-"}
    said = "joint-b has no forgetting metrics: it was evaluated at its last step only"
    assert said in table.notes


def test_the_matrix_shows_steps_by_tasks(tmp_path: Path) -> None:
    ahead = row(step=0, task_step=1, metrics={"rm": 3.0, "t2i_r1": 1.0})
    tables = _tables(tmp_path, [*own_rows(), *merged_rows(), ahead])
    table = tables["ctp: rm of each task (columns) after each task (rows)"]
    cell = table.groups[0].rows[0][2]
    assert (cell.text, cell.is_faint) == ("3.0", True), "before it was learned"
    lines = styled(table).plain.splitlines()
    assert lines[4].split() == ["00-smileys", "60.0", "3.0", "60.0"]
    assert lines[6].split() == ["02-animals", "40.0", "42.0", "30.0", "35.0"]
    assert lines[8].split() == ["forgotten", "20.0", "-2.0"]


Rows = list[dict[str, Any]]
WIDTH = 80


def _run(name: str, scores: dict[str, list[float]]) -> Rows:
    rows = current(own_rows([[50.0] * (step + 1) for step in range(3)], run=name), start="S")
    for data, found in scores.items():
        rows += outside_rows(found, data, run=name)
    return [one | {"checkpoint": f"{name}-{one['step']}"} for one in rows]


ROWS = [
    *_run("ctp", {"coco": [79, 78, 76], "flickr": [60, 61, 62]}),
    *_run("modx", {"coco": [70, 50, 36], "flickr": [55, 40, 30]}),
    *start_rows({"coco": 80, "flickr": 60}),
]


def _cells(table: Table) -> dict[tuple[str, str], list[str]]:
    return {
        (group.name, line[0].text): [cell.text for cell in line[1:]]
        for group in table.groups
        for line in group.rows
    }


def test_guards_have_baseline_steps_and_drop(tmp_path: Path) -> None:
    table = _tables(tmp_path, ROWS)["Guards: rm on data outside the stream"]
    names = [column.name for column in table.columns]
    assert names == ["run", "baseline", "after 0", "after 1", "after 2", "drop"]
    rows = _cells(table)
    assert rows["coco", "ctp"] == ["80.00", "79.00", "78.00", "76.00", "4.00"]
    assert rows["flickr", "ctp"][-1] == "-2.00"
    assert rows["coco", "modx"][-1] == "44.00"


def test_a_long_run_shows_its_first_and_last_steps(tmp_path: Path) -> None:
    every = [row(step=step, task_step=step, task=f"{step:03d}") for step in range(150)]
    tasks = [one | {"checkpoint": f"c{one['step']}"} for one in current(every, start="S")]
    rows = [*tasks, *outside_rows([50.0] * 150), *start_rows({"coco": 80})]
    table = _tables(tmp_path, rows, allow_missing=True)["Guards: rm on data outside the stream"]
    shown = [column.name for column in table.columns]
    assert shown == [
        *("run", "baseline", "after 0", "after 1", "after 2"),
        *(f"after {step}" for step in range(143, 150)),
        "drop",
    ]
    assert {"baseline: production", "shows 10 of 150 steps"} <= {*table.notes}
    assert max(map(len, styled(table, WIDTH).plain.splitlines())) <= WIDTH


def test_the_change_against_the_start_is_in_the_table_of_final_scores(tmp_path: Path) -> None:
    names = ("00-smileys", "01-people", "02-animals")
    rows = [*_run("ctp", {}), *start_rows(dict.fromkeys(names, 57.0))]
    table = _tables(tmp_path, rows)["Last model, mean over the tasks' own galleries"]
    assert table.columns[-1].name == "change"
    assert table.groups[-1].rows[0][-1].text == "-7.00"
    assert table.notes[0].startswith("change (in rm): against the start")


def test_two_averages_of_one_name_are_told_apart(tmp_path: Path) -> None:
    rows = ROWS[:0]
    for one in [*_run("ctp", {"average of 2": [7, 6, 5]}), *start_rows({"average of 2": 8})]:
        outside = one["task"] == "average of 2"
        for members in (["a", "b"], ["c", "d"]) if outside else ([],):
            data = {"data": str(members)} if outside else {}
            rows.append(one | {"tasks": members} | data)
    document = reported(tmp_path, rows)
    guards = {one.data for one in document.drops if one.curve.is_guard}
    assert guards == {"average of 2: a, b", "average of 2: c, d"}


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


def _table(document: Document) -> Table:
    ((heading, (table,)),) = document.calibration_sections()
    assert heading == "Calibration"
    return table


def test_guards_and_tasks_have_the_start_the_step_before_and_the_last_model(tmp_path: Path) -> None:
    table = _table(reported(tmp_path, _rows()))
    names = [one.title for one in table.columns[1:4]]
    assert names == ["recall: start", "recall: before", "recall: last"]
    found = {place: " ".join(cells) for place, cells in _cells(table).items()}
    assert found == {
        ("ctp", "golden"): "85.00 80.00 70.00 75.00 70.00 67.00 95.00 90.00 70.00",
        ("ctp", "00-smileys"): "- 80.00 70.00 - 70.00 67.00 - 90.00 70.00",
        ("ctp", "01-people"): "- - 70.00 - - 67.00 - - 70.00",
    }


def test_every_format_has_the_section_and_a_terminal_its_columns(tmp_path: Path) -> None:
    document = reported(tmp_path, _rows())
    assert "## Calibration" in markdown(document)
    assert "| *ctp* |" in markdown(document).partition("## Calibration")[2]
    assert "<h2>Calibration</h2>" in page(document)
    assert "Calibration" in dict(document.terminal_sections())


WHOLE = ((60.0, 20.0, 10.0), (50.0, 40.0, 20.0), (40.0, 42.0, 30.0))
TITLE = "Metrics of newer benchmarks in rm"


def cells(path: Path, rows: Rows, title: str = TITLE) -> dict[str, str]:
    return {name: cell.line for name, cell in _row(_tables(path, rows)[title], "ctp").items()}


def test_a_run_evaluated_on_all_tasks_has_the_numbers_of_zscl(tmp_path: Path) -> None:
    found = cells(tmp_path, own_rows(WHOLE))
    assert found == {
        "run": "ctp",
        "transfer_zscl": "17.50",
        "avg_zscl": "34.67",
        "own_final": "37.33",
    }


def test_transfer_after_one_task_is_not_defined_yet(tmp_path: Path) -> None:
    rows = own_rows(WHOLE[:1])
    (verdict,) = reported(tmp_path, rows, fail_if=["transfer_zscl:lt:5"], undefined="pass").verdicts
    assert (verdict.undefined, verdict.passes) == ("it has one step, and it needs two", True)


def test_retention_is_the_mean_over_data_sets_and_a_mean_is_not_counted_beside_them(
    tmp_path: Path,
) -> None:
    mean = outside_rows([0, 0, 0], "average of 2", tasks=["coco", "flickr"])
    rows = own_rows() + outside_rows([70, 60, 50]) + outside_rows([40, 40, 30], "flickr") + mean
    document = reported(tmp_path, rows, fail_if=["zs_fomo:lt:45"])
    assert cells(tmp_path, rows)["zs_fomo"] == "40.00"
    assert document.verdicts[0].holds


def test_retention_needs_the_last_model_on_every_data_set(tmp_path: Path) -> None:
    rows = own_rows() + outside_rows([70, 60, 50]) + outside_rows([40, 40], "flickr")
    (run,) = reported(tmp_path, rows).tracks[0].runs
    assert run.summary("rm", "zs_fomo") is None
    assert run.why_undefined(DEFINITIONS["zs_fomo"]) == (
        "its last model was not evaluated on all data outside the stream: coco, flickr"
    )
    (run,) = reported(tmp_path, own_rows()).tracks[0].runs
    assert run.why_undefined(DEFINITIONS["zs_fomo"]) == (
        "it was not evaluated on data outside the stream"
    )


def test_a_run_with_zero_shot_rows_alone_has_a_retention(tmp_path: Path) -> None:
    """Tasks are pairs, and the data outside of them classes: two tracks."""
    classes = {"evaluator": "zeroshot", "protocol": ""}
    rows = own_rows() + outside_rows([70, 60, 50], "imagenet", **classes)
    rows = [one | {"metrics": {"acc1": 50.0}} if one["task"] == "imagenet" else one for one in rows]
    document = reported(tmp_path, rows, fail_if=["zs_fomo.acc1:lt:60"])
    (verdict,) = document.verdicts
    assert (verdict.run, verdict.value, verdict.holds) == ("ctp", 50.0, True)
    assert cells(tmp_path, rows, "Metrics of newer benchmarks in acc1")["zs_fomo"] == "50.00"
    assert document.tracks[1].runs == ()
    assert fact(document, "zs_fomo", "acc1")["value"] == 50
    assert not facts_of(document, "own_final", "acc1")


ALL = {"run": "all", "method": "joint"}


def of_seeds(
    shifts: tuple[float, ...], seeds: tuple[int, ...], **fields: Any
) -> list[dict[str, Any]]:
    return [
        one
        for shift, seed in zip(shifts, seeds, strict=True)
        for one in own_rows(
            ((60.0,), (50.0, 40.0), (40.0 + shift, 42.0, 30.0)), seed=seed, **fields
        )
    ]


def test_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    # The last models differ in one of three tasks: by 3, 6 and 9 points, seed by seed.
    rows = of_seeds((0, 3, 6), (0, 1, 2)) + of_seeds((3, 9, 15), (0, 1, 2), **ALL)
    found = fact(reported(tmp_path, rows), "to_oracle", gallery="own", run="ctp")
    assert (found["value"], found["sd"], found["values"]) == (-2, 1, [-1, -2, -3])
    assert found["low"] == pytest.approx(-2 - 4.302653 / 3**0.5, abs=1e-5)  # Student's t, 2 d. f.
    assert found["high"] == pytest.approx(-2 + 4.302653 / 3**0.5, abs=1e-5)


def test_other_seeds_are_compared_by_their_means(tmp_path: Path) -> None:
    rows = of_seeds((0, 6), (0, 1)) + of_seeds((3, 9), (2, 3), **ALL)
    found = fact(reported(tmp_path, rows), "to_oracle", gallery="own", run="ctp")
    assert (found["value"], found["n"], found["sd"]) == (-1, 1, None)
    # Welch: both have a standard error of 1, so 2 degrees of freedom.
    assert found["low"] == pytest.approx(-1 - 4.302653 * 2**0.5, abs=1e-4)


def test_merged_galleries_are_compared_with_the_same_ones(tmp_path: Path) -> None:
    rows = (
        own_rows()
        + merged_rows()
        + own_rows(**ALL)
        + merged_rows(((1.0,), (2.0, 3.0), (4.0, 5.0, 45.0)), **ALL)
    )
    document = reported(tmp_path, rows)
    assert fact(document, "to_oracle", gallery="merged", run="ctp")["value"] == -10
    assert facts_of(document, "to_oracle", gallery="merged", run="all") == []


def test_the_table_of_final_scores_has_the_distance(tmp_path: Path) -> None:
    rows = of_seeds((0, 3, 6), (0, 1, 2)) + of_seeds((3, 9, 15), (0, 1, 2), **ALL)
    text = table_markdown(next(iter(_tables(tmp_path, rows).values())))
    assert "-4.48 to 0.48" in text
    assert "to all (in rm): final score minus that of the oracle" in text


def test_a_run_that_is_named_is_the_oracle(tmp_path: Path) -> None:
    rows = own_rows() + own_rows(run="best", method="er")
    assert facts_of(reported(tmp_path, rows), "to_oracle") == []
    found = facts_of(reported(tmp_path, rows, oracle="best"), "to_oracle", gallery="own")
    assert [(one["run"], one["value"]) for one in found] == [("ctp", 0)]
    with pytest.raises(UsageError, match="--oracle: unknown run 'bset'; did you mean 'best'"):
        reported(tmp_path, rows, oracle="bset")


COLUMN = (Column("rm", higher_is_better=True),)
FINAL = "Last model, mean over the tasks' own galleries"
Values = tuple[float, ...]


def bold(*rows: Values, seeds: bool = True, higher_is_better: bool = True) -> list[bool]:
    """Whether the cell of each row is bold, given its value for seeds 0, 1, ..."""
    columns = (Column("rm", higher_is_better=higher_is_better),)
    group = RowGroup("", tuple((number_cell(Spread(values)),) for values in rows))
    numbers = [tuple(range(len(values))) for values in rows] if seeds else []
    return [row[0].is_strong for row in with_best_marked(columns, group, numbers).rows]


def test_nothing_is_bold_below_three_seeds() -> None:
    assert bold((50.0,), (90.0,), (49.0,)) == [False] * 3
    assert bold((50.0, 51.0), (90.0, 91.5)) == [False] * 2
    assert bold((50.0, 51.0, 52.0), (90.0, 91.5, 92.0)) == [False, True]
    # A row of one seed: what is not known to be better than it is not known to be best.
    assert bold((50.0, 51.0, 52.0), (90.0, 91.5, 92.0), (10.0,)) == [False] * 3


def test_equal_numbers_share_it() -> None:
    equal, lower = (50.0, 51.0, 52.0), (10.0, 11.5, 12.0)
    assert bold(equal, equal, lower) == [True, True, False]
    assert bold((50.001, 51.0, 52.0), equal, lower) == [True, True, False]
    assert bold(equal, equal) == [False, False]


def test_a_difference_within_the_spread_is_not_bold() -> None:
    # Differences of mean 2, t by hand: 3.46 and 4.90, where the quantile of two degrees is 4.30.
    assert bold((51.0, 42.0, 33.0), (50.0, 40.0, 30.0)) == [False, False]
    assert bold((51.3, 42.0, 32.7), (50.0, 40.0, 30.0)) == [True, False]


@pytest.mark.parametrize("are_paired", [True, False])
def test_the_test_is_that_of_scipy(are_paired: bool) -> None:
    """Two-sided at 5 %: Student's t of pairs, Welch's t of others."""
    from scipy.stats import ttest_ind, ttest_rel  # takes seconds

    draw = np.random.default_rng(0)
    found = []
    for _ in range(200):
        one, other = draw.normal(1.5, 1.0, 4), draw.normal(0.0, 1.0, 4)
        test = ttest_rel(one, other) if are_paired else ttest_ind(one, other, equal_var=False)
        found.append(is_ahead(Spread(tuple(one)), Spread(tuple(other)), are_paired=are_paired))
        assert found[-1] == (test.pvalue < 0.05)
    assert {True, False} == set(found)


@pytest.mark.parametrize(("shift", "is_bold"), [(4.0, True), (0.0, False)])
def test_a_table_pairs_the_seeds_of_its_runs(tmp_path: Path, shift: float, is_bold: bool) -> None:
    rows = []
    for seed, more in enumerate((6.0, 5.0, shift)):
        matrix = tuple(tuple(value + 9 * seed for value in line) for line in OWN)
        better = tuple(tuple(value + more for value in line) for line in matrix)
        rows += own_rows(matrix, seed=seed) + own_rows(better, run="b", seed=seed)
    table = _tables(tmp_path, rows)[FINAL]
    ((_, *best),) = [row for row in table.groups[0].rows if row[0].text == "b"]
    assert best[1].is_strong is is_bold  # rm, after the method
    assert "mean and sample standard deviation, 3 seeds" in table.notes
    has_note = any(note.startswith("bold: better than the rest of its") for note in table.notes)
    assert has_note is any(cell.is_strong for row in table.groups[0].rows for cell in row)


def test_the_best_must_be_ahead_of_every_other() -> None:
    """The third has a lower mean than the second, and a spread that reaches the first."""
    first, second, third = (50.0, 50.0, 50.0), (48.0, 48.0, 48.0), (30.0, 64.0, 40.0)
    assert bold(first, second) == [True, False]
    assert bold(first, second, third) == [False] * 3
