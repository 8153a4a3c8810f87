"""CSV files that other programs read: one line per cell of a published table, one per row else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from support.eval_rows import own_rows
from support.published import column, fill, line

from vlcpctl.report.render.csv_files import published_csv, table_csv
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell

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


def _published(path: Path) -> str:
    parts = [
        column("first", "rm@data=00-*"),
        column("buffer", "", better='"none"'),
        line("SeqF", "seqf", '[30.0, "yes"]', sd='[0.5, ""]', group='"Free"'),
        line("LwF", "", '["", ""]'),
    ]
    return published_csv(fill(path, parts, own_rows(run="seqf"), paper_data=True))


def test_a_published_table_has_a_line_per_cell(tmp_path: Path) -> None:
    first, second, *others = _read(_published(tmp_path))
    assert first == {
        "table": "mine",
        "group": "Free",
        "row": "SeqF",
        "column": "first",
        "heading": "first",
        "paper": "30.0",
        "paper_sd": "0.5",
        "here": "40.0",
        "sd": "",
        "n_seeds": "1",
        "difference": "10.0",
    }
    assert (second["paper"], second["here"]) == ("yes", "")
    assert [one["here"] for one in others] == ["", ""]


def test_other_tables_have_a_line_per_row() -> None:
    assert _read(table_csv(TABLE)) == [
        {"group": "Memory free", "run": "a, b", "Recall: rm": "50.0", "Recall: rm sd": "1.41"}
        | {"steps": "3"},
        {"group": "Buffer", "run": '"c"', "Recall: rm": "", "Recall: rm sd": "", "steps": ""},
    ]


def test_control_characters_of_names_are_escaped() -> None:
    table = Table(
        "t", (Column("run", is_number=False),), (RowGroup("", ((TableCell("a\x1b[1m"),),)),)
    )
    assert table_csv(table) == "run\na\\x1b[1m\n"


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


def test_pandas_reads_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    published = pandas.read_csv(io.StringIO(_published(tmp_path)))
    assert published["here"].dtype.kind == "f"
    assert published["here"].count() == 1
    assert pandas.read_csv(io.StringIO(table_csv(TABLE)))["Recall: rm"].tolist()[0] == 50.0
