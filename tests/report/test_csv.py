"""CSV files that other programs read: one line per cell of a published table, one per row else."""

from __future__ import annotations

import csv
import io

import pytest

from vlcpctl.report.formats import table_csv
from vlcpctl.report.table import Column, RowGroup, Table, TableCell

TABLE = Table(
    "title",
    (Column("run", is_number=False), Column("rm", over="Recall"), Column("steps")),
    (
        RowGroup(
            "Memory free", ((TableCell("a, b"), TableCell("50.00", "1.41", 50.0), TableCell("3")),)
        ),
        RowGroup("Buffer", ((TableCell('"c"'), TableCell("-", is_faint=True), TableCell("-")),)),
    ),
)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_other_tables_have_a_line_per_row() -> None:
    assert _read(table_csv(TABLE)) == [
        {"group": "Memory free", "run": "a, b", "Recall: rm": "50.0", "Recall: rm sd": "1.41"}
        | {"steps": "3"},
        {"group": "Buffer", "run": '"c"', "Recall: rm": "", "Recall: rm sd": "", "steps": ""},
    ]


@pytest.mark.parametrize(
    "name",
    ["=HYPERLINK(1)", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", " =1", "\uff1d1"],
)
def test_a_name_is_no_formula_of_a_spreadsheet(name: str) -> None:
    columns = (Column(name, is_number=False), Column("drop"), Column("95 % interval"))
    cells = (TableCell(name), TableCell("-1.50", value=-1.5), TableCell("-2.00 to 1.50"))
    text = table_csv(Table("t", columns, (RowGroup(name, (cells,)),)))
    head, (group, run, drop, interval) = csv.reader(io.StringIO(text))
    assert (group, run) == (f"'{name}", f"'{name}")
    assert (drop, interval) == ("-1.5", "-2.00 to 1.50")
    assert head[1] == f"'{name}"
