"""A table as HTML: caption, recall keys on two lines, numbers aligned, best values bold."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, upper_headings

_RECALL = re.compile(r"(i2t|t2i)_(r\d+|rmean)")
_IDS = ("checkpoint", "trained from", "task data", "buffer data")
_CODE = frozenset({"formula", "metric", "condition", "command", *_IDS})
_PROSE = frozenset({"formula", "reading", "source", "verdict", "command"})


def html_table(table: Table) -> Markup:
    """The table with its notes, in a box that scrolls where the page is narrow."""
    names = element("tr", *(_head(column) for column in table.columns))
    head = element("thead", _upper_head(table.columns), names)
    bodies = (_body(group, table.columns) for group in table.groups)
    css = "ordered" if table.is_ordered else None
    whole = element("table", element("caption", table.title), head, *bodies, class_=css)
    notes = element("ul", *(element("li", note) for note in table.notes), class_="notes")
    return joined(element("div", whole, class_="scroll"), notes if table.notes else "")


def _upper_head(columns: Sequence[Column]) -> Markup:
    spans = upper_headings(columns)
    cells = (
        element("th", over, colspan=count, scope="colgroup", class_="over")
        if over
        else element("td", colspan=count)
        for over, count in spans
    )
    return element("tr", *cells) if spans else Markup("")


def _head(column: Column) -> Markup:
    css = None if column.is_number else "words"
    return element("th", *_pretty(column.name), scope="col", class_=css)


def _pretty(name: str) -> tuple[str, ...]:
    """A recall key on two lines, as in the papers' tables; other names unchanged."""
    match = _RECALL.fullmatch(name)
    if match is None:
        return (name,)
    cut = match[2].removeprefix("r")
    return (match[1], element("br"), "R@mean" if cut == "mean" else f"R@{cut}")


def _body(group: RowGroup, columns: tuple[Column, ...]) -> Markup:
    heading = element(
        "tr", element("th", group.name, colspan=len(columns), scope="rowgroup", class_="group")
    )
    rows = (
        element("tr", *(_cell(*pair) for pair in zip(row, columns, strict=True)))
        for row in group.rows
    )
    return element("tbody", heading if group.name else "", *rows)


def _cell(cell: TableCell, column: Column) -> Markup:
    marks = {
        "words": not column.is_number,
        "prose": column.name in _PROSE,
        "best": cell.is_best,
        "strong": cell.is_strong,
        "faint": cell.is_faint,
    }
    css = " ".join(name for name, is_set in marks.items() if is_set) or None
    text: str = cell.text if cell.value is None else cell.text.replace("-", "\u2212")
    if column.name in _CODE:
        text = element("code", text)
    if cell.link:
        text = element("a", text, href=cell.link)
    spread = element("span", f"\u00b1{cell.sd}", class_="sd") if cell.sd else ""
    return element("td", text, spread, class_=css)
