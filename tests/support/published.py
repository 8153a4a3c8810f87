"""A published table made for tests, filled with the values of rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.eval_rows import read_back

from vlcpctl.report.papers import Paper
from vlcpctl.report.report import ReportRequest, build

ABOUT = {"paper": "Example", "number": "Table 1", "caption": "final scores"}
ABOUT |= {"citation": "Doe, Journal 2020", "data": "Three tasks"}


def write_table(
    path: Path, columns: Mapping[str, str], lines: Sequence[Sequence[str]], **about: str
) -> Path:
    """A file of a table: the selectors by heading; lines of group, row, run, select and cells.

    A line of more than `columns` needs none of its own selectors. `about` adds lines of comments.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"# {name}: {text}\n" for name, text in {**ABOUT, **about}.items())
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["group", "row", "run", "select", *columns])
        out.writerow(["select", "", "", "", *columns.values()])
        out.writerows(lines)
    return path


def fill(
    path: Path,
    columns: Mapping[str, str],
    lines: Sequence[Sequence[str]],
    rows: list[dict[str, Any]],
    **about: str,
) -> Paper:
    """The table with the values of evaluation rows."""
    file = write_table(path / "mine.csv", columns, lines, **about)
    request = ReportRequest(tables=[str(file)], allow_missing=True)
    (filled,) = build(read_back(path / "rows.ndjson", rows), request).published
    return filled
