"""Tables as aligned lines: styled and fitted to the width on a terminal, plain elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vlcpctl.core.console import emit, results
from vlcpctl.report.fit import GAP, cell_text, column_widths, fitted, total_width
from vlcpctl.report.table import Cell, Table

_NOTE_WIDTH = 100  # if stdout is not a terminal


def print_report(notes: Iterable[str], sections: Iterable[tuple[str, list[Table]]]) -> None:
    """Print each section's heading and tables on stdout, then the notes."""
    console = Console(file=results(), highlight=False)
    width = console.width if console.is_terminal else None
    for heading, tables in sections:
        if heading:
            _show(Text(f"{heading}\n", style="bold underline"), console)
        for table in tables:
            _show(styled(table, width), console)
    for note in notes:
        _show(Text(_wrapped(f"note: {note}", width or _NOTE_WIDTH)), console)


def _show(text: Text, console: Console) -> None:
    if console.is_terminal:
        console.print(text, soft_wrap=True)
    else:
        emit(text.plain)


def styled(table: Table, width: int | None = None) -> Text:
    """The table as styled lines, fitted to `width` terminal cells if given."""
    blocks = [table] if width is None else fitted(table, width)
    text = Text("\n").join(_block(block) for block in blocks)
    for note in blocks[-1].notes:
        text.append(_wrapped(note, width or _NOTE_WIDTH), style="dim")
    return text


def _block(table: Table) -> Text:
    widths = column_widths(table)
    rule = "-" * total_width(table) + "\n"
    text = Text()
    text.append(f"{table.title}\n", style="bold")
    text.append(rule, style="dim")
    text.append_text(
        _line([Cell(column.name, is_faint=True) for column in table.columns], table, widths)
    )
    for group in table.groups:
        text.append(rule, style="dim")
        if group.name:
            text.append(f"{group.name}\n", style="italic")
        for row in group.rows:
            text.append_text(_line(row, table, widths))
    return text.append(rule, style="dim")


def _line(cells: Iterable[Cell], table: Table, widths: list[int]) -> Text:
    line = Text()
    for cell, column, width in zip(cells, table.columns, widths, strict=True):
        content = cell_text(cell)
        pad = " " * (width - cell_len(content))
        line.append(pad if column.is_number else "")
        line.append(content, style=_style(cell))
        line.append(("" if column.is_number else pad) + " " * GAP)
    line.rstrip()
    return line.append("\n")


def _style(cell: Cell) -> str:
    if cell.is_best or cell.is_strong:
        return "bold"
    return "dim" if cell.is_faint else ""


def _wrapped(note: str, width: int) -> str:
    return textwrap.fill(note, width, subsequent_indent="  ") + "\n"
