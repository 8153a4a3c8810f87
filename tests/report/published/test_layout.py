"""A published table on the terminal, in Markdown and on the page: paper, here and difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import current, own_rows, row
from support.published import column, fill, line

from vlcpctl.report.published.layout import as_table
from vlcpctl.report.render.markdown import table_text
from vlcpctl.report.render.templates import render
from vlcpctl.report.render.terminal import styled
from vlcpctl.report.tables.table import Table

PARTS = [
    'decimals = 1\nnotes = ["fewer steps"]',
    column("first", "rm@data=00-*", header='["Recall", "first"]'),
    column("second", "rm@data=01-*", header='["Recall", "second"]', note='"a harder task"'),
    column("lost", "fr_dha.rm", header='["Lost"]', better='"lower"'),
    line("SeqF", "seqf", "[30.0, 42.5, 1.0]", sd='[0.5, "", ""]'),
    line("CTP", "ctp", '[41.0, "", 2.0]', group='"Ours"'),
    line("CTP+ER", "ctp+er", "[50.0, 51.0, 3.0]", group='"Ours"'),
    line("LwF", "", "[1.0, 1.0, 1.0]", group='"Ours"', note='"not in this toolkit"'),
]


def _table(path: Path, *, paper_data: bool) -> Table:
    better = [one | {"metrics": {"rm": one["metrics"]["rm"] + 1}} for one in own_rows(run="ctp")]
    second = [one | {"seed": 1, "checkpoint": "x" + one["checkpoint"]} for one in better]
    for one in second:
        one["metrics"] = {"rm": one["metrics"]["rm"] + 2}
    rows = [*own_rows(run="seqf"), *better, *second]
    return as_table(fill(path, PARTS, rows, paper_data=paper_data))


def test_three_lines_for_each_row(tmp_path: Path) -> None:
    text = styled(_table(tmp_path, paper_data=True)).plain
    lines = [one.split() for one in text.splitlines() if one and not one.startswith("-")]
    assert lines[:3] == [
        ["Example,", "Table", "1:", "final", "scores"],
        ["-------", "Recall", "-------"],
        ["row", "values", "first", "second", "Lost"],
    ]
    assert lines[3:6] == [
        ["SeqF", "paper", "30.0", "(0.5)", "42.5", "1.0"],
        ["here", "40.0", "42.0", "14.2"],
        ["difference", "+10.0", "-0.5", "+13.2"],
    ]
    assert lines[6:10] == [
        ["Ours"],
        ["CTP", "paper", "41.0", "2.0"],
        ["here", "42.0", "(1.4)", "44.0", "(1.4)", "13.8", "(0.3)"],
        ["difference", "+1.0", "+11.8"],
    ]
    assert lines[10:14] == [
        ["CTP+ER", "paper", "50.0", "51.0", "3.0"],
        ["here"],
        ["LwF", "paper", "1.0", "1.0", "1.0"],
        ["here"],
    ]


def test_notes_say_what_is_compared(tmp_path: Path) -> None:
    assert _table(tmp_path, paper_data=True).notes == (
        "paper: Doe, Journal 2020, Three tasks",
        "here: mean and sample standard deviation over 1 or 2 seeds",
        "the rows have no values of: ctp+er",
        "fewer steps",
        "Recall second: a harder task",
        "LwF: not in this toolkit",
    )


def test_values_of_other_data_are_grey_and_have_no_difference(tmp_path: Path) -> None:
    table = _table(tmp_path, paper_data=False)
    assert "difference" not in styled(table).plain
    assert "printed values are of other data: Three tasks" in table.notes
    paper, here = table.groups[0].rows
    assert all(cell.is_faint for cell in paper[1:])
    assert not any(cell.is_faint for cell in here)
    ours = _table(tmp_path, paper_data=True).groups[0].rows[0]
    assert not any(cell.is_faint for cell in ours[2:])


def test_the_best_here_of_a_group_is_bold_not_that_of_the_paper(tmp_path: Path) -> None:
    parts = [
        "decimals = 1",
        column("up", "rm@data=00-*"),
        column("down", "rm@data=00-*", better='"lower"'),
        column("any", "rm@data=00-*", better='"none"'),
        line("A", "a", "[99.0, 0.0, 0.0]"),
        line("B", "b", "[1.0, 1.0, 1.0]"),
    ]
    rows = []
    for seed in range(3):
        rows += own_rows(run="a", seed=seed)
        rows += own_rows(((90.0,), (80.0, 40.0), (80.0, 42.0, 30.0)), run="b", seed=seed)
    table = as_table(fill(tmp_path, parts, rows))
    best = [[cell.is_best for cell in row[2:]] for row in table.groups[0].rows]
    assert best == [[False] * 3, [False, True, False], [False] * 3, [True, False, False]]


def _of_seeds(run: str, values: dict[int, float]) -> list[dict[str, Any]]:
    """A run of one task, with scores on it and on a guard for each seed."""
    rows = []
    for seed, value in values.items():
        rows += own_rows(((value,),), run=run, seed=seed)
        for step, score in ((None, 90.0), (0, value)):
            metrics = {"rm": score, "t2i_r1": 1.0}
            about = {"run": run, "seed": seed, "task_step": None, "task": "coco"}
            id_ = f"{run}-{seed}-{step}" if step is None else f"c{step}-{seed}" if seed else "c0"
            rows.append(row(step=step, metrics=metrics, checkpoint=id_, **about))
    return rows


def _best_here(path: Path, parts: list[str], rows: list[dict[str, Any]]) -> list[list[bool]]:
    found = as_table(fill(path, parts, rows)).groups[0].rows
    return [[cell.is_best for cell in line[2:]] for line in found if line[1].text == "here"]


PAIRED = [
    column("task", "rm@data=00-*"),
    column("own", "own_final.rm"),
    column("guard", "rm@data=coco"),
    column("drop", "drop.rm@data=coco", better='"lower"'),
    column("mean", "", mean_of='["task", "own"]'),
    line("A", "a", "[1.0, 1.0, 1.0, 1.0, 1.0]"),
    line("B", "b", "[1.0, 1.0, 1.0, 1.0, 1.0]"),
]


def test_runs_of_the_same_seeds_are_paired(tmp_path: Path) -> None:
    first = _of_seeds("a", {0: 52.0, 1: 42.0, 2: 47.0})
    same, others = ({seed: 50.0, seed + 1: 40.0, seed + 2: 45.0} for seed in (0, 3))
    assert _best_here(tmp_path, PAIRED, [*first, *_of_seeds("b", same)]) == [
        [True] * 5,
        [False] * 5,
    ]
    assert _best_here(tmp_path, PAIRED, [*first, *_of_seeds("b", others)]) == [[False] * 5] * 2


def test_bold_is_explained_where_there_is_any(tmp_path: Path) -> None:
    first = _of_seeds("a", {0: 52.0, 1: 42.0, 2: 47.0})
    same, others = ({seed: 50.0, seed + 1: 40.0, seed + 2: 45.0} for seed in (0, 3))
    notes = as_table(fill(tmp_path, PAIRED, [*first, *_of_seeds("b", same)])).notes
    assert any(note.startswith("bold: better than the rest of its group") for note in notes)
    notes = as_table(fill(tmp_path, PAIRED, [*first, *_of_seeds("b", others)])).notes
    assert not any("bold" in note for note in notes)


def test_numbers_that_are_shown_alike_are_best_together(tmp_path: Path) -> None:
    values = {"a": 41.004, "b": 41.001, "c": 30.0}
    rows = []
    for run, value in values.items():
        rows += _of_seeds(run, dict.fromkeys(range(3), value))
    parts = [column("x", "rm@data=00-*"), *(line(run, run, "[1.0]") for run in values)]
    assert _best_here(tmp_path, ["decimals = 2", *parts], rows) == [
        [True],
        [True],
        [False],
    ]
    assert _best_here(tmp_path, ["decimals = 3", *parts], rows) == [
        [True],
        [False],
        [False],
    ]


def test_a_difference_has_the_decimals_of_its_column(tmp_path: Path) -> None:
    parts = [
        column("fine", "rm@data=00-*", decimals="3"),
        column("rough", "rm@data=00-*", decimals="0"),
        line("A", "a", "[40.0, 40.0]"),
    ]
    table = as_table(fill(tmp_path, parts, _of_seeds("a", {0: 41.25, 1: 41.5}), paper_data=True))
    assert [[(cell.text, cell.sd) for cell in line[2:]] for line in table.groups[0].rows] == [
        [("40.000", ""), ("40", "")],
        [("41.375", "0.177"), ("41", "0")],
        [("+1.375", ""), ("+1", "")],
    ]


def test_notes_list_misprints_and_data_that_are_not_the_papers(tmp_path: Path) -> None:
    parts = [
        column("one", "rm@data=00-*", counts="{ n_images = 5000 }"),
        column("mean", "", mean_of='["one"]'),
        line("A", "a", "[40.0, 45.0]"),
    ]
    rows = current(own_rows(((50.0,),), run="a"))  # of 50 images
    filled_ = fill(tmp_path, parts, rows, paper_data=True)
    notes = as_table(filled_).notes
    assert "no difference in one, mean: n_images is 50 in the rows and 5000 in the paper" in notes
    assert "misprint in the paper: A, mean: 45.00 is printed, but the mean of one is 40.00" in notes
    assert filled_.difference(0, 1) is None  # a mean of data that are not the paper's


def test_columns_under_one_heading_stay_together_on_a_narrow_terminal(tmp_path: Path) -> None:
    table = _table(tmp_path, paper_data=True)
    narrow = styled(table, 36).plain
    heads = [one.split() for one in narrow.splitlines() if one.startswith("row")]
    assert heads == [["row", "values", "first", "second"], ["row", "values", "Lost"]]
    assert max(map(len, narrow.splitlines())) <= 36
    assert "left out at this width: standard deviations" in narrow.replace("\n  ", " ")
    assert narrow.count("CTP+ER") == 2  # a name stands in every block


def test_a_page_spans_upper_headings(tmp_path: Path) -> None:
    text = render("tables.html", "table", _table(tmp_path, paper_data=True))
    assert '<th colspan="2" scope="colgroup" class="over">Recall</th>' in text
    assert '<table class="ordered">' in text
    markdown = table_text(_table(tmp_path, paper_data=True))
    assert "| row | values | Recall: first | Recall: second | Lost |" in markdown


def test_a_table_without_published_numbers_has_no_lines_for_a_paper(tmp_path: Path) -> None:
    parts = [
        "decimals = 1",
        column("first", "rm@data=00-*"),
        column("second", "rm@data=01-*"),
        line("Plain", "seqf", '["", ""]'),
        line("CTP", "ctp", '["", ""]'),
    ]
    rows = [*own_rows(run="seqf"), *own_rows(run="ctp")]
    table = as_table(fill(tmp_path, parts, rows))
    shown = [[cell.text for cell in line] for line in table.groups[0].rows]
    assert [line[:2] for line in shown] == [["Plain", "here"], ["CTP", "here"]]
    assert shown[0][2:] == ["40.0", "42.0"]
    assert table.notes[0] == "data: Doe, Journal 2020, Three tasks"
    assert not any("printed" in note for note in table.notes)
