"""Tables as GitHub-flavoured Markdown, for issues, notes and model cards."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vlcpctl.core.markdown import escaped
from vlcpctl.report.tables.table import Table, TableCell

# What would start a list or a rule at the start of a line.
_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


def markdown(
    title: str,
    notes: Iterable[str],
    sections: Iterable[tuple[str, list[Table]]],
    definitions: Table,
    first: Iterable[str] = (),
) -> str:
    """The report as Markdown: notes, then each section's heading and tables, then definitions.

    `first` are blocks of Markdown that stand above the notes.
    """
    parts = [f"# {escaped(title)}", *first, *(f"> {_line_of(note)}" for note in notes)]
    for heading, tables in sections:
        parts += [f"## {escaped(heading)}"] if heading else []
        parts += [table_text(table) for table in tables]
    parts.append(table_text(definitions))
    return "\n\n".join(parts) + "\n"


def table_text(table: Table) -> str:
    """The table under a heading, and its notes as a list."""
    heads = [escaped(column.title) for column in table.columns]
    marks = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [_line(heads), _line(marks)]
    for group in table.groups:
        if group.name:
            lines.append(_line([f"*{escaped(group.name)}*"] + [""] * (len(heads) - 1)))
        lines += [_line([_cell(cell) for cell in row]) for row in group.rows]
    notes = ["", bullets(table.notes)] if table.notes else []
    return "\n".join([f"### {escaped(table.title)}", "", *lines, *notes])


def bullets(lines: Iterable[str]) -> str:
    """The lines as a list."""
    return "\n".join(f"- {_line_of(line)}" for line in lines)


def _line_of(text: str) -> str:
    """The escaped text for the start of a line: "1. a" is not the first item of a list."""
    # A number starts a list because of the mark behind it, so the mark is escaped.
    return _START.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", escaped(text)
    )


def _cell(cell: TableCell) -> str:
    text = escaped(cell.line)
    return f"**{text}**" if text and (cell.is_best or cell.is_strong) else text


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
