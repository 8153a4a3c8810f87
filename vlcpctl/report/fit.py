"""Fits a table to a width: leaves out minor deviations, then minor columns, then deviations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from rich.cells import cell_len, set_cell_size

from vlcpctl.report.table import Cell, Group, Table

GAP = 2  # blanks between columns
_LEGIBLE = 12  # characters that a shortened name keeps


def fitted(table: Table, width: int) -> list[Table]:
    """The table without what does not fit, split into blocks of columns if necessary.

    A note names the columns that were left out.
    """
    table = _without_minor_spreads(table, width)
    left_out: list[str] = []
    for rank in _ranks(table):
        if total_width(table) > width:
            left_out += [column.name for column in table.columns if column.rank == rank]
            table = _without_rank(table, rank)
    if total_width(table) > width:
        table = _without_spreads(table, range(len(table.columns)))
    if left_out:
        note = f"left out at this width: {', '.join(left_out)}"
        table = replace(table, notes=(*table.notes, note))
    return _blocks(_with_short_words(table, width), width)


def column_widths(table: Table) -> list[int]:
    """Terminal cells that each column needs."""
    rows = [row for group in table.groups for row in group.rows]
    return [
        max([cell_len(column.name), *(cell_len(cell_text(row[place])) for row in rows)])
        for place, column in enumerate(table.columns)
    ]


def total_width(table: Table) -> int:
    """Terminal cells that the whole table needs."""
    widths = column_widths(table)
    return sum(widths) + GAP * (len(widths) - 1)


def cell_text(cell: Cell) -> str:
    """The cell in one line.

    >>> cell_text(Cell("51.00", "1.41"))
    '51.00 (1.41)'
    """
    return f"{cell.text} ({cell.sd})" if cell.sd else cell.text


def _without_minor_spreads(table: Table, width: int) -> Table:
    for rank in _ranks(table):
        if total_width(table) <= width:
            break
        places = [place for place, column in enumerate(table.columns) if column.rank == rank]
        table = _without_spreads(table, places)
    return table


def _ranks(table: Table) -> list[int]:
    """Ranks of the columns that may be left out, in that order."""
    return sorted({column.rank for column in table.columns if column.rank > 0}, reverse=True)


def _without_spreads(table: Table, places: Collection[int]) -> Table:
    return _mapped(
        table,
        lambda row: tuple(
            replace(cell, sd="") if i in places else cell for i, cell in enumerate(row)
        ),
    )


def _without_rank(table: Table, rank: int) -> Table:
    return _only_columns(
        table, [i for i, column in enumerate(table.columns) if column.rank != rank]
    )


def _with_short_words(table: Table, width: int) -> Table:
    """The first column shortened to the remaining width, if that leaves it legible."""
    room = column_widths(table)[0] - (total_width(table) - width)
    if total_width(table) <= width or room < _LEGIBLE:
        return table
    return _mapped(table, lambda row: (replace(row[0], text=_cut(row[0].text, room)), *row[1:]))


def _cut(text: str, room: int) -> str:
    """The text, its end replaced by a tilde if it is too long.

    >>> _cut("02-animals-nature", 12)
    '02-animals-~'
    """
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1)}~"


def _blocks(table: Table, width: int) -> list[Table]:
    """As few tables as possible that fit, each with the first column."""
    widths = column_widths(table)
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for place in range(1, len(widths)):
        if blocks[-1] and used + GAP + widths[place] > width:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(place)
        used += GAP + widths[place]
    return [
        replace(
            _only_columns(table, [0, *places]), notes=table.notes if places is blocks[-1] else ()
        )
        for places in blocks
    ]


def _only_columns(table: Table, places: list[int]) -> Table:
    columns = tuple(table.columns[place] for place in places)
    return replace(
        _mapped(table, lambda row: tuple(row[place] for place in places)), columns=columns
    )


def _mapped(table: Table, change: Callable[[tuple[Cell, ...]], tuple[Cell, ...]]) -> Table:
    """The table with every row changed."""
    groups = tuple(
        Group(group.name, tuple(change(row) for row in group.rows)) for group in table.groups
    )
    return replace(table, groups=groups)
