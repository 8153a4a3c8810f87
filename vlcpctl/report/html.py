"""Pages by Jinja: every value that is not itself markup is escaped and made printable.

In an element of a template, a value is written as `{{ value }}`; an attribute that varies is
written by `attributes(...)`, which also escapes quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vlcpctl.report.charts import LEVEL_DASH, MARKERS, shade
from vlcpctl.report.formats import paper_name
from vlcpctl.report.markup import Markup, attributes, escaped
from vlcpctl.report.table import Column, TableCell, upper_headings

if TYPE_CHECKING:
    import jinja2

_MINUS = "\u2212"
_MOST_ROWS = 60  # of a table that is shown at once; a longer one is folded
_BREAK = re.compile(r"\n\s*")
_CODE = frozenset({"formula", "metric", "condition"})
_PROSE = frozenset({"formula", "reading", "source", "verdict"})


def render(template: str, macro: str, *values: Any, **named: Any) -> Markup:
    """What a macro of a template makes of these values; parts.html has tables and charts."""
    module = _environment().get_template(template).module
    return Markup(getattr(module, macro)(*values, **named))


def source(*names: str) -> Markup:
    """The text of files of the page, such as its style."""
    directory = files("vlcpctl.report")
    return Markup("".join(directory.joinpath(one).read_text(encoding="utf-8") for one in names))


@cache
def _environment() -> jinja2.Environment:
    """The templates; line breaks and indentation in them are not part of the page."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        optimized=False,  # of constant expressions, of which there are few; it takes 6 ms
        finalize=lambda value: value if hasattr(value, "__html__") else escaped(str(value)),
        loader=jinja2.FunctionLoader(lambda name: _BREAK.sub("", source(f"templates/{name}"))),
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {
        "LEVEL_DASH": LEVEL_DASH,
        "MARKERS": MARKERS,
        "MOST_ROWS": _MOST_ROWS,
        "attributes": attributes,
        "cells": _cells,
        "head": _head,
        "shaded": _shaded,
        "upper_headings": upper_headings,
    }
    return environment


def _head(column: Column) -> tuple[str, str]:
    """The name of a column as papers have it, and the key that conditions take if it is another."""
    name = paper_name(column.name) if column.is_number else column.name
    return name, "" if name == column.name else column.name


def _cells(
    row: Sequence[TableCell], columns: Sequence[Column]
) -> Iterator[tuple[str | None, TableCell, str, bool]]:
    """(classes, cell, text, whether it is code) of each cell of a row."""
    for cell, column in zip(row, columns, strict=True):
        marks = {
            "words": not column.is_number,
            "prose": column.name in _PROSE,
            "strong": cell.is_strong,
            "faint": cell.is_faint,
        }
        css = " ".join(name for name, is_set in marks.items() if is_set) or None
        text = cell.text if cell.value is None else cell.text.replace("-", _MINUS)
        yield css, cell, text, column.name in _CODE


def _shaded(cells: Sequence[TableCell], highest: float) -> Markup:
    """The cells of a row of a matrix, blank neighbours joined to one.

    The tasks that a model has not learned are many and empty. A loop of a template takes twice as
    long for the other cells.
    """
    found = []
    for is_blank, run in groupby(cells, lambda cell: not cell.text):
        if is_blank:
            count = len(list(run))
            found.append(f"<td{attributes(colspan=count if count > 1 else None)}>")
            continue
        for cell in run:
            if cell.value is None:
                found.append(f'<td class="faint">{escaped(cell.text)}')
                continue
            css = f"h{shade(cell.value, highest)}"
            marks = f'"{css} learned"' if cell.is_strong else css
            found.append(f"<td class={marks}>{escaped(cell.text.replace('-', _MINUS))}")
    return Markup("".join(found))
