"""A published table made for tests, filled with the values of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.eval_rows import read_back

from vlcpctl.report.build import build
from vlcpctl.report.published.cells import FilledTable
from vlcpctl.report.request import ReportRequest

HEAD = """
schema = "vlcpctl.table/1"
paper = "Example"
citation = "Doe, Journal 2020"
number = "Table 1"
caption = "final scores"
data = "Three tasks"
"""


def column(id_: str, select: str, **more: str) -> str:
    """A column of a table file; `more` are further lines as TOML."""
    lines = "".join(f"{name} = {value}\n" for name, value in more.items() if name != "header")
    header = more.get("header", f'["{id_}"]')
    return f'[[columns]]\nid = "{id_}"\nheader = {header}\nselect = "{select}"\n{lines}'


def line(name: str, run: str, printed: str, **more: str) -> str:
    """A row of a table file; `more` are further lines as TOML."""
    lines = "".join(f"{key} = {value}\n" for key, value in more.items())
    return f'[[rows]]\nname = "{name}"\nrun = "{run}"\nprinted = {printed}\n{lines}'


def fill(
    path: Path,
    parts: list[str],
    rows: list[dict[str, Any]],
    *,
    paper_data: bool = False,
    **more: Any,
) -> FilledTable:
    """The table of these lines, columns and rows of TOML with the values of evaluation rows."""
    file = path / "mine.toml"
    file.write_text("\n".join([HEAD, *parts]), encoding="utf-8")
    request = ReportRequest(tables=[str(file)], paper_data=paper_data, allow_missing=True, **more)
    (filled,) = build(read_back(path / "rows.ndjson", rows), request).published
    return filled
