"""Directories with every table of a report as a CSV file, or as a LaTeX file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.core.errors import BadInput
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import MANIFESTS, write_manifest
from vlcpctl.report.document import Document
from vlcpctl.report.published.layout import as_table
from vlcpctl.report.render.csv_files import published_csv, table_csv
from vlcpctl.report.render.file_names import free_name
from vlcpctl.report.render.latex import table_latex
from vlcpctl.report.tables.table import Table

ENDINGS = {"csv": ".csv", "latex": ".tex"}

_MOST_FILES = 2000


def write_tables(
    document: Document, identity: dict[str, Any], out: Path, form: str, *, force: bool
) -> bool:
    """Write every table of the report as a file of the form "csv" or "latex".

    Returns False if `out` already has these very tables. Raises OutputExists if it holds anything
    else, unless `force`.
    """
    identity = {**identity, "format": form}
    if already_made(out, "tables", identity, force=force):
        return False
    texts = dict(_texts(document, form))
    if len(texts) > _MOST_FILES:
        raise BadInput(
            f"the report has {len(texts)} tables, more than {_MOST_FILES}; report fewer runs at a "
            "time with --run"
        )
    with new_directory(out, MANIFESTS["tables"]) as directory:
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
        digests = {name: content_id(text) for name, text in texts.items()}
        write_manifest(directory, "tables", identity, content_id(digests), {"files": [*texts]})
    return True


def _texts(document: Document, form: str) -> Iterator[tuple[str, str]]:
    """The name and text of every file: first the published tables, then the report's own."""
    taken: dict[str, None] = {}
    ending = ENDINGS[form]
    for filled in document.published:
        name = free_name(filled.table.name, taken)
        is_csv = form == "csv"
        yield (
            name + ending,
            published_csv(filled) if is_csv else table_latex(as_table(filled), name),
        )
    for heading, table in _own_tables(document):
        name = free_name(f"{heading} {table.title}", taken)
        titled = replace(table, title=f"{table.title} ({heading})" if heading else table.title)
        yield name + ending, table_csv(table) if form == "csv" else table_latex(titled, name)


def _own_tables(document: Document) -> Iterator[tuple[str, Table]]:
    """The tables that compare runs, without the task x step matrix of each run."""
    for heading, tables in document.sections(has_matrices=False):
        yield from ((heading, table) for table in tables)
