"""Tables as aligned lines: styled and fitted to the width on a terminal, plain elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from vlcpctl.core.console import emit, results
from vlcpctl.core.words import printable
from vlcpctl.report.tables.table import Table, TableCell, upper_headings

if TYPE_CHECKING:
    from rich.text import Text

_UNLIMITED = 10**4  # width if stdout is not a terminal
_NOTE_WIDTH = 100  # at most
_GAP = 2  # blanks between columns
_ROOM = 28  # of two numbers with deviations


def print_report(notes: Iterable[str], sections: Iterable[tuple[str, list[Table]]]) -> None:
    """Print each section's heading and tables on stdout, then the notes."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=results(), highlight=False)
    width = console.width if console.is_terminal else _UNLIMITED

    def show(text: Text) -> None:
        if console.is_terminal:
            console.print(text, soft_wrap=True)
        else:  # rich would exit with 1, not 141, when the reader of a pipe has gone
            for line in text.plain.split("\n"):
                emit(line)

    for heading, tables in sections:
        if heading:
            show(Text(f"{printable(heading)}\n", "bold underline"))
        for table in tables:
            show(styled(table, width))
    for note in notes:
        show(Text(_wrapped(f"note: {printable(note)}", width)))


def styled(table: Table, width: int = _UNLIMITED) -> Text:
    """The table as styled lines, fitted to `width` terminal cells; unsafe text is escaped."""
    from rich.text import Text

    blocks = fitted(table.with_texts(printable), width)
    text = Text("\n").join(_block(block, width) for block in blocks)
    for note in blocks[-1].every_note:
        text.append(_wrapped(note, width), "dim")
    return text


def fitted(table: Table, width: int) -> list[Table]:
    """The table without what does not fit, split into blocks of columns if necessary.

    Deviations of minor columns go first, then minor columns by rank (a note names them), then all
    deviations. (A table of rich would shrink every column until no number can be read.)
    """

    def is_too_wide() -> bool:
        return _total(_widths(table, width)) > width

    if is_too_wide():
        table = table.without_deviations(min_rank=1)
    left_out: list[str] = []
    while is_too_wide() and (rank := max(c.rank for c in table.columns)):
        left_out += [column.name for column in table.columns if column.rank == rank]
        table = table.only([i for i, column in enumerate(table.columns) if column.rank < rank])
    if is_too_wide():
        has_sd = any(cell.sd for group in table.groups for row in group.rows for cell in row)
        left_out += ["standard deviations"] if has_sd else []
        table = table.without_deviations()
    if left_out:
        note = f"left out at this width: {', '.join(left_out)}"
        table = replace(table, readings=(*table.readings, note))
    return _blocks(table, width)


def _blocks(table: Table, width: int) -> list[Table]:
    """As few tables as possible that fit, each with the key columns, the last with the notes.

    Columns under one upper heading stay together if they fit.
    """
    widths = _widths(table, width)
    keys = _total(widths[: table.keys])
    blocks: list[list[int]] = [[]]
    used = keys
    for place, needed in enumerate(widths[table.keys :], table.keys):
        joined = sum(_GAP + widths[one] for one in _starts_here(table, place))
        is_full = used + _GAP + needed > width
        if blocks[-1] and (is_full or used + joined > width >= keys + joined):
            blocks.append([])
            used = keys
        blocks[-1].append(place)
        used += _GAP + needed
    tables = [table.only([*range(table.keys), *places]) for places in blocks]
    return [*(replace(block, notes=(), readings=()) for block in tables[:-1]), tables[-1]]


def _starts_here(table: Table, place: int) -> range:
    """The places of the columns whose upper heading starts at this place; empty without one."""
    first = 0
    for over, count in upper_headings(table.columns):
        if first == place and over:
            return range(first, first + count)
        first += count
    return range(0)


def _total(widths: list[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(table: Table, width: int) -> list[int]:
    """Terminal cells of each column; the first takes what leaves room for numbers.

    The last column under an upper heading is as wide as this needs.
    """
    from rich.cells import cell_len

    rows = [row for group in table.groups for row in group.rows]
    first, *others = (
        max(cell_len(text) for text in (column.name, *(row[place].line for row in rows)))
        for place, column in enumerate(table.columns)
    )
    widths = [min(first, max(width // 2, width - _ROOM)), *others]
    place = 0
    for over, count in upper_headings(table.columns):
        place += count
        room = _total(widths[place - count : place])
        widths[place - 1] += max(0, cell_len(over) + (_GAP if count > 1 else 0) - room)
    return widths


def _block(table: Table, width: int) -> Text:
    """Title, header and groups between rules."""
    from rich.text import Text

    widths = _widths(table, width)
    rule = Text("-" * _total(widths), "dim")
    head = [TableCell(column.name, is_faint=True) for column in table.columns]
    lines = [Text(table.title, "bold"), rule]
    lines += [_upper_line(table, widths)] if upper_headings(table.columns) else []
    lines.append(_line(head, table, widths))
    for group in table.groups:
        lines += [rule, *([Text(group.name, "italic")] if group.name else [])]
        lines += [_line(row, table, widths) for row in group.rows]
    return Text("\n").join([*lines, rule, Text()])


def _upper_line(table: Table, widths: list[int]) -> Text:
    """The upper headings, between dashes in the middle of their columns if there are several."""
    from rich.text import Text

    parts, place = [], 0
    for over, count in upper_headings(table.columns):
        room = _total(widths[place : place + count])
        is_joined = over and count > 1
        text = Text(f" {over} " if is_joined else over, overflow="ellipsis")
        text.align("center" if is_joined else "right", room, "-" if is_joined else " ")
        parts.append(text)
        place += count
    line = Text(" " * _GAP).join(parts)
    line.stylize("dim")
    line.rstrip()
    return line


def _line(cells: Iterable[TableCell], table: Table, widths: list[int]) -> Text:
    """Cells aligned in their columns, a name that is too long cut with an ellipsis."""
    from rich.text import Text

    texts = [Text(cell.line, _style(cell), overflow="ellipsis") for cell in cells]
    for text, column, width in zip(texts, table.columns, widths, strict=True):
        text.align("right" if column.is_number else "left", width)
    line = Text(" " * _GAP).join(texts)
    line.rstrip()
    return line


def _style(cell: TableCell) -> str:
    if cell.is_best or cell.is_strong:
        return "bold"
    return "dim" if cell.is_faint else ""


def _wrapped(note: str, width: int) -> str:
    return textwrap.fill(note, min(width, _NOTE_WIDTH), subsequent_indent="  ") + "\n"
