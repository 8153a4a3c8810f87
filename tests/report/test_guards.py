"""The tables and charts of guards: what they show, and what they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import current, own_rows, read_back, row

from vlcpctl.report.formats import styled
from vlcpctl.report.page import page
from vlcpctl.report.report import Document, ReportRequest, build
from vlcpctl.report.table import Table

Rows = list[dict[str, Any]]
WIDTH = 80


def _run(name: str, scores: dict[str, list[float]], **fields: Any) -> Rows:
    tasks = current(own_rows([[50.0] * (step + 1) for step in range(3)], run=name), start="S")
    rows = [one | {"metrics": {"rm": 50.0, "i2t_r1": 20.0}} for one in tasks]
    for data, found in scores.items():
        for step, score in enumerate(found):
            one = row(run=name, task=data, task_step=None, step=step)
            rows += current([one | {"metrics": {"rm": score, "i2t_r1": score / 2}}], start="S")
    return [one | {"checkpoint": f"{name}-{one['step']}"} | fields for one in rows]


def _start(scores: dict[str, float]) -> Rows:
    about = {"run": "production", "method": "imported", "checkpoint": "S", "step": None}
    return [
        one | about | {"config": None, "metrics": {"rm": score, "i2t_r1": score / 2}}
        for data, score in scores.items()
        for one in current([row(task=data, task_step=None)])
    ]


ROWS = [
    *_run("ctp", {"coco": [79, 78, 76], "flickr": [60, 61, 62]}),
    *_run("modx", {"coco": [70, 50, 36], "flickr": [55, 40, 30]}),
    *_start({"coco": 80, "flickr": 60}),
]


def _document(path: Path, rows: Rows, **fields: Any) -> Document:
    return build(read_back(path / "r", rows), ReportRequest(**fields))


def _tables(document: Document, **fields: Any) -> dict[str, Table]:
    return {table.title: table for _, tables in document.sections(**fields) for table in tables}


def _lines(table: Table) -> list[str]:
    return styled(table, WIDTH).plain.splitlines()


def test_guards_have_baseline_steps_and_drop(tmp_path: Path) -> None:
    table = _tables(_document(tmp_path, ROWS))["Guards: rm on data outside the stream"]
    names = [column.name for column in table.columns]
    assert names == ["run", "baseline", "after 0", "after 1", "after 2", "drop"]
    rows = {
        (group.name, line[0].text): [cell.text for cell in line[1:]]
        for group in table.groups
        for line in group.rows
    }
    assert rows["coco", "ctp"] == ["80.00", "79.00", "78.00", "76.00", "4.00"]
    assert rows["flickr", "ctp"][-1] == "-2.00"
    assert rows["coco", "modx"][-1] == "44.00"


def test_a_long_run_shows_its_first_and_last_steps(tmp_path: Path) -> None:
    tasks = [
        one
        for step in range(150)
        for one in current(
            [row() | {"step": step, "task_step": step, "task": f"{step:03d}"}], start="S"
        )
    ]
    outside = [
        one
        for step in range(150)
        for one in current([row(step=step, task_step=None, task="coco")], start="S")
    ]
    tasks = [one | {"checkpoint": f"c{one['step']}"} for one in tasks]
    document = _document(tmp_path, [*tasks, *outside, *_start({"coco": 80})], allow_missing=True)
    table = _tables(document)["Guards: rm on data outside the stream"]
    shown = [column.name for column in table.columns]
    assert shown == [
        *("run", "baseline", "after 0", "after 1", "after 2"),
        *(f"after {step}" for step in range(143, 150)),
        "drop",
    ]
    assert "shows 10 of 150 steps" in table.notes
    assert max(map(len, _lines(table))) <= WIDTH


def test_of_many_guards_the_largest_drops_are_drawn(tmp_path: Path) -> None:
    names = [f"set-{number:02d}" for number in range(30)]
    rows = [
        *_run("ctp", {name: [60.0 - number] * 3 for number, name in enumerate(names)}),
        *_start(dict.fromkeys(names, 60.0)),
    ]
    shown = page(_document(tmp_path, rows))
    assert "Drawn: the 24 of 30 guards with the largest drops." in shown
    assert "R@mean after each step, on set-29." in shown
    assert "R@mean after each step, on set-05." not in shown


def test_the_change_against_the_start_is_in_the_table_of_final_scores(tmp_path: Path) -> None:
    names = ("00-smileys", "01-people", "02-animals")
    rows = [*_run("ctp", {}), *_start(dict.fromkeys(names, 57.0))]
    table = _tables(_document(tmp_path, rows))["Last model, mean over the tasks' own galleries"]
    assert table.columns[-1].name == "change"
    assert table.groups[-1].rows[0][-1].text == "-7.00"
    assert table.readings[0].startswith("change (in rm): against the start")


def test_two_averages_of_one_name_are_told_apart(tmp_path: Path) -> None:
    rows = ROWS[:0]
    for one in [*_run("ctp", {"average of 2": [7, 6, 5]}), *_start({"average of 2": 8})]:
        outside = one["task"] == "average of 2"
        for members in (["a", "b"], ["c", "d"]) if outside else ([],):
            data = {"data": str(members)} if outside else {}
            rows.append(one | {"tasks": members} | data)
    document = _document(tmp_path, rows)
    guards = {one.data for one in document.drops if one.curve.is_guard}
    assert guards == {"average of 2: a, b", "average of 2: c, d"}
