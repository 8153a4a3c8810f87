"""Tables as CSV: a published table with one line per cell, any other with one line per row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping

from vlcpctl.core.words import printable
from vlcpctl.report.published.cells import FilledTable
from vlcpctl.report.published.records import FIELDS, records
from vlcpctl.report.scores.paper_names import on_one_line
from vlcpctl.report.tables.table import UNDEFINED, Table

_DECIMALS = 6
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # the last four: full-width forms
_NUMBERS = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?( to [-+]?[0-9.]+)?")


def published_csv(filled: FilledTable) -> str:
    """A header and one line for each cell: table, row, column, paper, here, sd, ...; blank: none.

    `here` and `sd` are the mean and the sample standard deviation over `n_seeds` seeds.
    """
    lines = (_values(record) for record in records(filled))
    return _text([FIELDS, *lines])


def table_csv(table: Table) -> str:
    """A header and one line for each row; numbers are not rounded as they are shown.

    A column with deviations is followed by them, and `group` has the headings of groups of rows.
    Keys of metrics have the names of papers.
    """
    has_groups = any(group.name for group in table.groups)
    has_sd = [
        any(row[place].sd for group in table.groups for row in group.rows)
        for place in range(len(table.columns))
    ]
    head = ["group"] if has_groups else []
    for column, has in zip(table.columns, has_sd, strict=True):
        is_key = column.is_number and not column.over
        name = on_one_line(column.name) if is_key else column.title
        head += [name, f"{name} sd"] if has else [name]
    lines = [head]
    for group in table.groups:
        for row in group.rows:
            line = [group.name] if has_groups else []
            for cell, has in zip(row, has_sd, strict=True):
                word = "" if cell.text == UNDEFINED else cell.text
                text = word if cell.value is None else _number(cell.value)
                line += [text, cell.sd] if has else [text]
            lines.append(line)
    return _text(lines)


def _values(record: Mapping[str, object]) -> Iterable[str]:
    for name in FIELDS:
        value = record[name]
        yield "" if value is None else _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return repr(round(value, _DECIMALS) + 0.0)


def _text(lines: Iterable[Iterable[str]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([_literal(printable(value)) for value in line] for line in lines)
    return file.getvalue()


def _literal(text: str) -> str:
    """The text, with an apostrophe if a spreadsheet would compute it.

    >>> _literal("=1+1"), _literal("-1.5"), _literal("-1.20 to 3.40")
    ("'=1+1", '-1.5', '-1.20 to 3.40')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text
