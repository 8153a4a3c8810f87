"""Tables as GitHub-flavoured Markdown, for issues, notes and model cards."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vlcpctl.report.tables.table import Table, TableCell

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#&~])")


def markdown(
    title: str,
    notes: Iterable[str],
    sections: Iterable[tuple[str, list[Table]]],
    definitions: Table,
) -> str:
    """The report as Markdown: notes, then each section's heading and tables, then definitions."""
    parts = [f"# {escaped(title)}", *(f"> {escaped(note)}" for note in notes)]
    for heading, tables in sections:
        parts += [f"## {escaped(heading)}"] if heading else []
        parts += [_table(table) for table in tables]
    parts.append(_table(definitions))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    heads = [escaped(column.name) for column in table.columns]
    marks = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [_line(heads), _line(marks)]
    for group in table.groups:
        if group.name:
            lines.append(_line([f"*{escaped(group.name)}*"] + [""] * (len(heads) - 1)))
        lines += [_line([_cell(cell) for cell in row]) for row in group.rows]
    notes = ["", *(f"- {escaped(note)}" for note in table.notes)] if table.notes else []
    return "\n".join([f"### {escaped(table.title)}", "", *lines, *notes])


def escaped(text: str) -> str:
    r"""The text on one line, escaped so that Markdown shows it literally.

    >>> escaped("a|b <i>_c_")
    'a\\|b \\<i\\>\\_c\\_'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _cell(cell: TableCell) -> str:
    text = escaped(cell.line)
    return f"**{text}**" if text and (cell.is_best or cell.is_strong) else text


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
