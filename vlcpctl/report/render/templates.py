"""Jinja templates of pages: every value that is not itself markup is escaped and made printable.

In an element, a value is written as `{{ value }}`; an attribute that varies is written by
`attributes(...)`, which also escapes quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vlcpctl.report.charts import LEVEL_DASH, MARKERS, SIDE_DASHES, picture, shade
from vlcpctl.report.forgotten.changes import WAYS
from vlcpctl.report.markup import Markup, attributes, escaped
from vlcpctl.report.table import Column, TableCell, upper_headings

if TYPE_CHECKING:
    import jinja2

FEW_RUNS = 8  # more have small multiples beside the chart of all, and tables instead of bars

_MINUS = "\u2212"
_MOST_ROWS = 60  # of a table of data outside the stream that is shown at once
_BREAK = re.compile(r"\n\s*")
_RECALL = re.compile(r"(i2t|t2i)_(r\d+|rmean)")
_IDS = ("checkpoint", "trained from", "task data", "buffer data")
_CODE = frozenset({"formula", "metric", "condition", "command", *_IDS})
_PROSE = frozenset({"formula", "reading", "source", "verdict", "command"})


def render(template: str, macro: str, *values: Any, **named: Any) -> Markup:
    """What a macro of a template makes of these values."""
    module = _environment().get_template(template).module
    return Markup(getattr(module, macro)(*values, **named))


def source(name: str) -> str:
    """The text of a file of the page, such as its style or a template."""
    return files("vlcpctl.report").joinpath(name).read_text(encoding="utf-8")


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
        "FEW_RUNS": FEW_RUNS,
        "LEVEL_DASH": LEVEL_DASH,
        "MARKERS": MARKERS,
        "MOST_ROWS": _MOST_ROWS,
        "SIDE_DASHES": SIDE_DASHES,
        "WAYS": WAYS,
        "attributes": attributes,
        "cells": _cells,
        "heading_lines": _heading_lines,
        "picture": picture,
        "shaded": _shaded,
        "upper_headings": upper_headings,
    }
    return environment


def _heading_lines(name: str) -> tuple[str, ...]:
    """A recall key on two lines, as in the papers' tables; other names unchanged."""
    match = _RECALL.fullmatch(name)
    if match is None:
        return (name,)
    cut = match[2].removeprefix("r")
    return (match[1], "R@mean" if cut == "mean" else f"R@{cut}")


def _cells(
    row: Sequence[TableCell], columns: Sequence[Column]
) -> Iterator[tuple[str | None, TableCell, str, bool]]:
    """(classes, cell, text, whether it is code) of each cell of a row."""
    for cell, column in zip(row, columns, strict=True):
        marks = {
            "words": not column.is_number,
            "prose": column.name in _PROSE,
            "best": cell.is_best,
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
