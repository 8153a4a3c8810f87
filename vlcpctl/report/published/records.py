"""A published table as records, one per cell: for CSV files and summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlcpctl.report.published.cells import FilledTable
from vlcpctl.report.scores.summary import Spread

FIELDS = (
    "table",
    "group",
    "row",
    "column",
    "heading",
    "paper",
    "paper_sd",
    "here",
    "sd",
    "n_seeds",
    "difference",
)

_DECIMALS = 6


def records(filled: FilledTable) -> Iterator[dict[str, Any]]:
    """A record with FIELDS for each cell, row by row; None where there is no value.

    `paper` and `here` are numbers or text; `sd` is the sample standard deviation over `n_seeds`.
    """
    for place, (row, cells) in enumerate(zip(filled.table.rows, filled.cells, strict=True)):
        for number, (column, cell) in enumerate(zip(filled.table.columns, cells, strict=True)):
            here = cell.here
            yield {
                "table": filled.table.name,
                "group": row.group,
                "row": row.name,
                "column": column.id,
                "heading": column.title,
                "paper": cell.printed,
                "paper_sd": cell.printed_sd,
                "here": _rounded(here.mean) if isinstance(here, Spread) else here,
                "sd": _rounded(here.sd) if isinstance(here, Spread) else None,
                "n_seeds": len(here.values) if isinstance(here, Spread) else None,
                "difference": _rounded(filled.difference(place, number)),
            }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def table_json(filled: FilledTable) -> dict[str, Any]:
    """The table as an object of summary.json: what it is, misprints and cells."""
    table = filled.table
    return {
        "table": table.name,
        "title": table.title,
        "citation": table.citation,
        "data": table.data,
        "is_paper_data": filled.is_paper_data,
        "notes": list(table.notes),
        "missing_runs": list(filled.missing_runs),
        "misprints": [
            {
                "row": one.row,
                "column": one.column,
                "printed": one.printed,
                "mean": _rounded(one.mean),
            }
            for one in filled.misprints
        ],
        "cells": [
            {name: value for name, value in record.items() if name != "table"}
            for record in records(filled)
        ],
    }
