"""A step x task table as HTML, its scores shaded on a scale."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from vlcpctl.report.charts.heat_maps import shade
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell


def heat_table(table: Table, highest: float, *, has_caption: bool = True) -> Markup:
    """The table with its notes; numbers are shaded up to `highest`, in a box that scrolls."""
    head = element("thead", element("tr", *map(_head, table.columns)))
    bodies = (_body(group, highest) for group in table.groups)
    caption = element("caption", table.title) if has_caption else ""
    label = None if has_caption else table.title
    whole = element("table", caption, head, *bodies, class_="heat", aria_label=label)
    notes = element("ul", *(element("li", note) for note in table.notes), class_="notes")
    return joined(element("div", whole, class_="scroll"), notes if table.notes else "")


def _head(column: Column) -> Markup:
    return element("th", column.name, scope="col", class_=None if column.is_number else "words")


def _body(group: RowGroup, highest: float) -> Markup:
    return element("tbody", *(_row(row, highest) for row in group.rows))


def _row(row: Sequence[TableCell], highest: float) -> Markup:
    name, *cells = row
    parts = [element("th", name.text, scope="row", class_="words")]
    # The tasks that a model has not learned are many and empty: one cell for all of them.
    for is_blank, found in groupby(cells, lambda cell: not cell.text):
        run = list(found)
        if is_blank:
            parts.append(Markup("<td>" if len(run) == 1 else f'<td colspan="{len(run)}">'))
        else:
            parts += [_cell(cell, highest) for cell in run]
    return element("tr", *parts)


def _cell(cell: TableCell, highest: float) -> Markup:
    """The cell; HTML needs no end tags here, and a large matrix has many thousand cells."""
    if cell.value is None:
        return joined(Markup('<td class="faint">'), cell.text)
    css = f"h{shade(cell.value, highest)}{' learned' if cell.is_strong else ''}"
    text = cell.text.replace("-", "\u2212")
    quoted = f'"{css}"' if " " in css else css
    return Markup(f"<td class={quoted}>{text}")
