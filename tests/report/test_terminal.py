"""Tables keep to their width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from support.eval_rows import row

from vlcpctl.report.formats import fitted, print_report, styled
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables import measured_table


def _table(names: list[str], label: str = "ctp", sd: str = "1.00") -> Table:
    columns = [Column("run", is_number=False), *map(Column, names)]
    cells = (TableCell(label), *(TableCell("50.00", sd) for _ in names))
    return Table("title", tuple(columns), (RowGroup("group", (cells,)),), ("a note",))


def test_a_long_name_is_cut_to_leave_room_for_numbers() -> None:
    table = _table(["rm"], label="a-long-name-of-a-run", sd="")
    assert "a-long-nam\u2026  50.00\n" in styled(table, 22).plain
    assert "a-long-name-of-a-run  50.00\n" in styled(table, 60).plain


def test_columns_are_put_in_blocks() -> None:
    blocks = fitted(_table([str(i) for i in range(6)], sd=""), 24)
    assert [len(block.columns) for block in blocks] == [4, 4]
    assert {block.columns[0].name for block in blocks} == {"run"}
    assert [block.notes for block in blocks] == [(), ("a note",)]


def test_no_line_is_wider_than_asked() -> None:
    for width in range(30, 120, 7):
        text = styled(_table([f"metric_{i}" for i in range(9)]), width)
        assert max(cell_len(line) for line in text.plain.splitlines()) <= width


def test_wide_characters_keep_the_columns_aligned() -> None:
    table = _table(["rm"], label="日本", sd="")
    lines = styled(table).plain.splitlines()
    assert len({cell_len(line) for line in lines if "rm" in line or "50.00" in line}) == 1


def test_a_pipe_gets_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(["mind this"], [("heading", [_table(["rm"])])])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.startswith("heading\n\ntitle\n")
    assert out.endswith("note: mind this\n\n")


def _zeroshot(**fields: object) -> dict[str, object]:
    metrics = {"acc1": 12.345, "acc5": 50.0, "mean_per_class_recall": 12.0}
    return {
        **row(step=0, task_step=0, metrics=metrics),
        "evaluator": "zeroshot",
        "protocol": "",
        "n_images": 80,
        **fields,
    }


def test_rows_are_grouped_by_checkpoint() -> None:
    table = measured_table(
        [_zeroshot(), _zeroshot(seed=3), _zeroshot(step=None), _zeroshot(alpha=0.5), _zeroshot()]
    )
    assert [(group.name, len(group.rows)) for group in table.groups] == [
        ("ctp, after task 0", 2),
        ("ctp, seed 3, after task 0", 1),
        ("ctp, before any task", 1),
        ("ctp, alpha 0.5, after task 0", 1),
    ]


def test_a_metric_that_a_row_lacks_is_a_dash() -> None:
    rows = [_zeroshot(), {**_zeroshot(), "metrics": {"acc1": 1.0}}]
    (group,) = measured_table(rows).groups
    assert [[cell.text for cell in line[1:]] for line in group.rows] == [
        ["12.35", "50.00", "12.00", "80"],
        ["1.00", "-", "-", "80"],
    ]
