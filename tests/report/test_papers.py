"""Published tables: each cell has the one value that its selectors match, or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.eval_rows import current, merged_rows, own_rows, row
from support.published import fill, write_table

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.formats import records_csv, styled
from vlcpctl.report.papers import FIELDS, Paper, load_paper, paper_table, shipped_names
from vlcpctl.report.scores import Spread

SINCE = {"run": "ctp", "step": 0, "checkpoint": "c0"}


def _angles(counts: tuple[int, ...], **fields: Any) -> dict[str, Any]:
    names = ("sam_image", "sam_text", "ram_image", "ram_text", "imav_i2t", "imav_t2i")
    found = row(evaluator="spatial", protocol="angles", step=1, task_step=None, task="pairs")
    degrees = dict.fromkeys(names, counts)
    return found | {"since": SINCE, "degrees": degrees, "metrics": {"sam_image_0_5": 60.0}} | fields


def _rows() -> list[dict[str, Any]]:
    start = [
        row(step=None, task_step=task, checkpoint="s", metrics={"rm": 10.0 + task})
        for task in range(3)
    ]
    outside = [
        row(step=step, task_step=None, task="coco", tasks=["coco"], metrics={"rm": 20.0 + step})
        for step in (0, 1, 2)
    ]
    return [*own_rows(), *merged_rows(), *start, *outside]


def here(paper: Paper) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(cell.here for cell in row.cells) for row in paper.rows)


def _value(path: Path, select: str, rows: list[dict[str, Any]], run: str = "ctp") -> Any:
    here = fill(path, {"cell": select}, [["", "A row", run, "", "1.0"]], rows).rows[0].cells[0].here
    return getattr(here, "mean", here)


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("merged_final.rm", 35.0),
        ("rm", 35.0),
        ("rm@gallery=own", (40 + 42 + 30) / 3),
        ("own_final.rm", (40 + 42 + 30) / 3),
        ("rm@gallery=merged,step=1", 44.0),
        ("rm@gallery=own,step=1", 45.0),
        ("rm@gallery=own,step=start", 11.0),
        ("rm@gallery=merged,step=start", None),
        ("rm@data=00-*", 40.0),
        ("rm@data=00-*,step=0", 60.0),
        ("rm@data=02-animals,step=start", 12.0),
        ("rm@data=coco", 22.0),
        ("rm@data=coco,step=0", 20.0),
        ("t2i_r1@data=01-*", 21.0),
        ("rm@step=7", None),
        ("rm@data=coco,step=start", None),
        ("rm@data=cifar", None),
        ("acc1", None),
        ("rm@protocol=multi-modal", None),
        ("rm@method=ctp,evaluator=retrieval,split=test", 35.0),
        ("bwt_gem.rm", -9.0),
        ("bwt_gem.rm@data=00-*", -20.0),
        ("fr_dha.rm@data=01-*", -5.0),
        ("bwt_gem.rm@data=02-*", None),  # nothing was learned after it
        ("drop.rm@data=00-*", -30.0),
        ("zs_fomo.rm", 22.0),
        ("config.lr", None),
    ],
)
def test_a_selector_finds_its_value(tmp_path: Path, select: str, value: float | None) -> None:
    assert _value(tmp_path, select, _rows()) == (None if value is None else pytest.approx(value))


def test_seeds_are_averaged_and_a_seed_without_the_value_makes_a_blank(tmp_path: Path) -> None:
    rows = own_rows(seed=0) + [
        one | {"metrics": {"rm": one["metrics"]["rm"] + 2}} for one in own_rows(seed=1)
    ]
    column, lines = {"cell": "rm@data=00-*"}, [["", "CTP", "ctp", "", "1.0"]]
    assert fill(tmp_path, column, lines, rows).rows[0].cells[0].here == Spread((40.0, 42.0))
    assert fill(tmp_path, column, lines, rows[:-3]).rows[0].cells[0].here is None


def test_angles_are_found_by_their_steps(tmp_path: Path) -> None:
    later = _angles((90, 0, 10), step=2, checkpoint="c2", since={**SINCE, "step": 1})
    rows = [*own_rows(), _angles((30, 30, 40)), later]
    assert _value(tmp_path, "degrees.sam_image.0.1@step=1", rows) == 30.0
    assert _value(tmp_path, "degrees.ram_text.1.3@since=1", rows) == 10.0
    assert _value(tmp_path, "sam_image_0_5@step=2,since=1", rows) == 60.0
    assert _value(tmp_path, "degrees.sam_image.0.1@since=start", rows) is None


def test_a_setting_is_that_of_the_last_step_and_selects(tmp_path: Path) -> None:
    rows = current(own_rows())
    for one in rows:
        values = {"settings": {"lr": 0.1 if one["step"] < 2 else 0.01, "betas": [0.9, 0.99]}}
        one["config"] = {"id": str(values), "values": values}
    assert _value(tmp_path, "config.lr", rows) == "0.01"
    assert _value(tmp_path, "config.lr@step=0", rows) == "0.1"
    assert _value(tmp_path, "config.betas.1", rows) == "0.99"
    assert _value(tmp_path, "config.momentum", rows) is None
    assert _value(tmp_path, "config.lr@evaluator=probe", rows) is None
    assert _value(tmp_path, "own_final.rm@config.lr=0.01", rows) is not None
    assert _value(tmp_path, "own_final.rm@config.lr=0.1", rows) is None


@pytest.mark.parametrize(
    ("select", "run", "field"),
    [("rm@data=0*", "ctp", "data"), ("rm", "*", "run"), ("map_1", "ctp", "protocol")],
)
def test_several_values_are_refused(tmp_path: Path, select: str, run: str, field: str) -> None:
    rows = own_rows() + own_rows(run="er")
    for one in list(rows):
        one["metrics"]["map_1"] = 1.0
        if one["run"] == "ctp":
            rows.append(one | {"protocol": "multi-modal", "metrics": {"map_1": 2.0}})
    with pytest.raises(BadInput, match=f"row 'A row', column cell .*{field}="):
        _value(tmp_path, select, rows, run)


def test_selectors_of_the_table_give_way_and_those_of_the_row_add_up(tmp_path: Path) -> None:
    columns = {"a": "rm", "b": "rm@data=01-*", "c": "own_final.rm"}
    lines = [["", "all", "ctp", "", "", "", ""], ["", "last", "ctp", "data=02-*", "", "", ""]]
    ((a, b, c), (d, e, _)) = here(fill(tmp_path, columns, lines, own_rows(), select="data=00-*"))
    assert (a, b, d, e) == (Spread((40.0,)), Spread((42.0,)), Spread((30.0,)), None)
    assert c is not None  # a summary takes no data=


def test_lines_of_selectors_are_about_the_rows_below_them(tmp_path: Path) -> None:
    select = ["select", "", "", "", "rm@data=01-*", "rm@data=02-*"]
    lines = [["", "one", "ctp", "", "", ""], select, ["", "two", "ctp", "", "", ""]]
    found = here(fill(tmp_path, {"a": "rm@data=00-*", "b": ""}, lines, own_rows()))
    assert found == ((Spread((40.0,)), None), (Spread((42.0,)), Spread((30.0,))))


def test_a_table_has_lines_of_printed_values_and_of_values_here(tmp_path: Path) -> None:
    better = [one | {"metrics": {"rm": one["metrics"]["rm"] + 1}} for one in own_rows(run="ctp")]
    second = [one | {"seed": 1, "checkpoint": "x" + one["checkpoint"]} for one in better]
    columns = {"Recall / first": "rm@data=00-*", "Recall / second": "rm@data=01-*"}
    columns |= {"mean": "mean of Recall / first; Recall / second", "hours": ""}
    lines = [
        ["better", "", "", "", "", "", "", "lower"],
        ["", "SeqF", "seqf", "", "30.0 ± 0.5", "42.5", "36.2", "-"],
        ["Ours", "CTP", "ctp", "", "41.0", "", "", "2"],
        ["Ours", "LwF", "lwf", "", "", "", "", "3"],
    ]
    filled = fill(tmp_path, columns, lines, [*own_rows(run="seqf"), *better, *second], note="few")
    table = paper_table(filled)
    text = [one.split() for one in styled(table).plain.splitlines() if one and one[0] != "-"]
    assert text[:8] == [
        ["Example,", "Table", "1:", "final", "scores"],
        ["-------", "Recall", "-------"],
        ["row", "values", "first", "second", "mean", "hours"],
        ["SeqF", "paper", "30.0", "(0.5)", "42.5", "36.2", "-"],
        ["here", "40.0", "42.0", "41.0"],
        ["Ours"],
        ["CTP", "paper", "41.0", "2"],
        ["here", "41.0", "(0.0)", "43.0", "(0.0)", "42.0", "(0.0)"],
    ]
    assert table.notes == (
        "paper: Doe, Journal 2020, Three tasks",
        "here: mean and sample standard deviation over 1 or 2 seeds",
        "the rows have no values of: lwf",
        "few",
    )
    assert [one.higher_is_better for one in table.columns[2:]] == [True, True, True, False]
    first, *_ = records_csv(FIELDS, filled.records()).splitlines()[1:]
    assert first == "mine,,SeqF,Recall first,30.0,0.5,40.0,,1"


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        ({}, []),
        ({"a": "rn"}, []),
        ({"a": "rm"}, [["", "CTP", "ctp", ""]]),
        ({"a": "rm"}, [["other", "", "", "", ""]]),
        ({"a": "mean of b"}, []),
        ({"a": "bwt_ctp.rm@data=x"}, []),
        ({"a": "degrees.sam_image.9.3"}, []),
    ],
)
def test_a_file_with_a_mistake_is_named(
    tmp_path: Path, columns: dict[str, str], lines: list[list[str]]
) -> None:
    file = write_table(tmp_path / "mine.csv", columns, lines)
    with pytest.raises(BadInput, match=f"^{re.escape(str(file))} is not a table: "):
        load_paper(str(file))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown table 'ctp-99'.*known: ctp-1, .*modx-fig9"):
        load_paper("ctp-99")


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_table_can_be_read_and_says_where_its_rows_come_from(name: str) -> None:
    paper = load_paper(name)
    assert re.fullmatch(r"bash recipes/\w+\.sh .*", paper.about["command"])
    assert "--emoji9" in paper.about["emoji9"]
    assert paper.title.startswith(paper.about["paper"])
    assert any(cell.metric for row_ in paper.rows for cell in row_.cells)


def test_there_are_as_many_printed_cells_as_in_the_papers() -> None:
    papers = [load_paper(name) for name in shipped_names()]
    cells = [cell for paper in papers for row_ in paper.rows for cell in row_.cells]
    assert len(papers) == 43
    assert sum(cell.printed is not None for cell in cells) == 1606, "as they were typed"
