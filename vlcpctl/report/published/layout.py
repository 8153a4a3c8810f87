"""A published table as a table of the report: the lines paper, here and difference for each row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from vlcpctl.core.errors import some_names
from vlcpctl.report.facts.table import Value
from vlcpctl.report.published.cells import Cell, FilledTable
from vlcpctl.report.published.definition import PublishedColumn
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import (
    BOLD,
    Column,
    RowGroup,
    Table,
    TableCell,
    fixed,
    with_best_marked,
)

PAPER, HERE, DIFFERENCE = "paper", "here", "difference"

_KEYS = (Column("row", is_number=False), Column("values", is_number=False))
_BLANK = TableCell("")


def as_table(filled: FilledTable) -> Table:
    """The table with a line of printed values, of values of rows and of differences per row."""
    columns = (*_KEYS, *(_column(column) for column in filled.table.columns))
    rows = filled.table.rows
    groups = tuple(
        RowGroup(group, tuple(_lines(filled, columns, group)))
        for group in dict.fromkeys(row.group for row in rows)
    )
    has_bold = any(cell.is_best for group in groups for row in group.rows for cell in row)
    notes = tuple(_notes(filled, has_bold=has_bold))
    return Table(filled.table.title, columns, groups, notes, keys=len(_KEYS), is_ordered=True)


def _column(column: PublishedColumn) -> Column:
    *upper, name = column.header
    return Column(name, higher_is_better=column.higher_is_better, over="".join(upper))


def _lines(
    filled: FilledTable, columns: tuple[Column, ...], group: str
) -> Iterable[tuple[TableCell, ...]]:
    places = [place for place, row in enumerate(filled.table.rows) if row.group == group]
    best, has_printed = _best(filled, columns, places), _has_printed(filled)
    for place, is_best in zip(places, best, strict=True):
        row, cells = filled.table.rows[place], filled.cells[place]
        numbers = range(len(cells))
        named = list(zip(cells, filled.table.columns, strict=True))
        is_faint = not filled.is_paper_data
        if has_printed:
            yield (
                TableCell(row.name),
                TableCell(PAPER, is_faint=True),
                *(_printed_cell(cell, column, is_faint=is_faint) for cell, column in named),
            )
        here = [_here_cell(cell.here, column) for cell, column in named]
        yield (
            _BLANK if has_printed else TableCell(row.name),
            TableCell(HERE),
            *(
                structs.replace(cell, is_best=mark)
                for cell, mark in zip(here, is_best, strict=True)
            ),
        )
        gaps = [filled.difference(place, number) for number in numbers]
        if any(gap is not None for gap in gaps):
            yield (
                _BLANK,
                TableCell(DIFFERENCE, is_faint=True),
                *(
                    _gap_cell(gap, column)
                    for gap, column in zip(gaps, filled.table.columns, strict=True)
                ),
            )


def _has_printed(filled: FilledTable) -> bool:
    """Whether the table has a published value; one of a user's own may have none."""
    return any(cell.printed not in (None, "") for line in filled.cells for cell in line)


def _best(
    filled: FilledTable, columns: tuple[Column, ...], places: Sequence[int]
) -> list[list[bool]]:
    """Which values of rows are the best of their column, in each row of a group."""
    marks = []
    for number, column in enumerate(filled.table.columns):
        cells = [filled.cells[place][number] for place in places]
        rows = tuple((_here_cell(cell.here, column),) for cell in cells)
        head = (columns[len(_KEYS) + number],)
        marked = with_best_marked(head, RowGroup("", rows), [cell.seeds for cell in cells])
        marks.append([cell.is_best for (cell,) in marked.rows])
    return [list(line) for line in zip(*marks, strict=True)]


def _printed_cell(cell: Cell, column: PublishedColumn, *, is_faint: bool) -> TableCell:
    if not isinstance(cell.printed, float):
        return TableCell(cell.printed or "", is_faint=is_faint)
    sd = "" if cell.printed_sd is None else fixed(cell.printed_sd, column.decimals)
    text = fixed(cell.printed, column.decimals)
    return TableCell(text, sd, cell.printed, is_faint=is_faint)


def _here_cell(here: Value, column: PublishedColumn) -> TableCell:
    if not isinstance(here, Spread):
        return TableCell(here or "")
    sd = "" if here.sd is None else fixed(here.sd, column.decimals)
    return TableCell(fixed(here.mean, column.decimals), sd, here.mean, values=here.values)


def _gap_cell(gap: float | None, column: PublishedColumn) -> TableCell:
    if gap is None:
        return _BLANK
    text = fixed(gap, column.decimals)
    sign = "+" if float(text) > 0 else ""
    return TableCell(sign + text, value=gap, is_faint=True)


def _notes(filled: FilledTable, *, has_bold: bool) -> Iterable[str]:
    table = filled.table
    source = f"{table.citation}, {table.data}" if table.citation else table.data
    has_printed = _has_printed(filled)
    yield f"{'paper' if has_printed else 'data'}: {source}"
    has_values = any(cell.here is not None for line in filled.cells for cell in line)
    if has_values and has_printed and not filled.is_paper_data:
        yield f"printed values are of other data: {table.data}"
    yield from _other_data(filled)
    yield from _seeds(filled, has_bold=has_bold)
    if filled.missing_runs:
        yield f"the rows have no values of: {some_names(filled.missing_runs)}"
    yield from (misprint.sentence for misprint in filled.misprints)
    yield from table.notes
    yield from (f"{one.title}: {one.note}" for one in table.columns if one.note)
    yield from (f"{one.name}: {one.note}" for one in table.rows if one.note)


def _other_data(filled: FilledTable) -> Iterable[str]:
    """The columns whose rows are, by their counts, not of the paper's data."""
    if not filled.is_paper_data:
        return
    found: dict[tuple[str, int, int], dict[str, None]] = {}
    for line in filled.cells:
        for cell, column in zip(line, filled.table.columns, strict=True):
            for one in cell.other:
                found.setdefault(one, {})[column.title] = None
    for (name, here, paper), columns in found.items():
        yield (
            f"no difference in {', '.join(columns)}: {name} is {here} in the rows and {paper} in "
            "the paper"
        )


def _seeds(filled: FilledTable, *, has_bold: bool) -> Iterable[str]:
    seeds = {
        len(cell.here.values)
        for line in filled.cells
        for cell in line
        if isinstance(cell.here, Spread)
    }
    if seeds - {1}:
        counts = " or ".join(str(count) for count in sorted(seeds))
        yield f"here: mean and sample standard deviation over {counts} seeds"
    if has_bold:
        yield BOLD
