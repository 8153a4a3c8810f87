"""Directories with the tables or the charts of a report as files: CSV, LaTeX, PDF, SVG and PNG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.core.printable import printable
from vlcpctl.files.atomic import already_made, new_directory
from vlcpctl.files.hashing import content_id
from vlcpctl.files.manifest import MANIFESTS, write_manifest
from vlcpctl.report.document import Document
from vlcpctl.report.paper_charts import Chart, drawings
from vlcpctl.report.published.layout import as_table
from vlcpctl.report.render.csv_files import published_csv, table_csv
from vlcpctl.report.render.figures import angle_histograms, run_styles, track_charts
from vlcpctl.report.render.latex import table_latex
from vlcpctl.report.tables.angles import MEASURES
from vlcpctl.report.tables.table import Table

_MOST_FILES = 2000  # of tables
_MOST_CHARTS = 200  # each takes about a second
_OTHER = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 100  # characters


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
    is_csv = form == "csv"
    ending = ".csv" if is_csv else ".tex"
    for filled in document.published:
        name = free_name(filled.table.name, taken)
        text = published_csv(filled) if is_csv else table_latex(as_table(filled), name)
        yield name + ending, text
    # Those that compare runs, without the task x step matrix of each run.
    sections = document.sections(has_matrices=False)
    titles = [one.title for one in document.tracks]
    titles += [one.title for one in document.spatial_tracks]
    parts = [title.split(", ") for title in titles]
    shared = set(parts[0]).intersection(*parts) if parts else set()
    # Above the table, for whoever writes its caption.
    chosen = "".join(f"% {printable(one.sentence())}\n" for one in document.choices)
    for heading, tables in sections:
        # Such as "retrieval", and of the protocol and the split what another section has not.
        first, *others = heading.split(", ")
        start = " ".join([first, *(part for part in others if part not in shared)])
        for table in tables:
            name = free_name(f"{start} {table.name or table.title}", taken)
            titled = replace(table, title=f"{table.title} ({heading})" if heading else table.title)
            if is_csv:
                text = table_csv(table)
            else:
                shown = _with_short_names(titled, document.short_names)
                text = chosen + table_latex(shown, name)
            yield name + ending, text


def _with_short_names(table: Table, names: Mapping[str, str]) -> Table:
    """The table with these names of its runs; a column that then repeats them is left out."""
    if not names:
        return table
    table = table.with_texts(lambda text: names.get(text, text))
    rows = [row for group in table.groups for row in group.rows]
    kept = [
        place
        for place, column in enumerate(table.columns)
        if column.name != "method" or any(row[place].text != row[0].text for row in rows)
    ]
    return replace(table.only(kept), keys=sum(place < table.keys for place in kept))


def write_figures(document: Document, identity: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write every chart of the report as NAME.pdf, NAME.svg and NAME.png.

    Returns False if `out` already has these very charts. Raises OutputExists if it holds anything
    else, unless `force`, and BadInput if there are too many charts.
    """
    identity = {**identity, "format": "figures"}
    if already_made(out, "figures", identity, force=force):
        return False
    charts = list(_charts(document))
    if len(charts) > _MOST_CHARTS:
        raise BadInput(
            f"the report has {len(charts)} charts, more than {_MOST_CHARTS}; report fewer runs at "
            "a time with --run"
        )
    stems: dict[str, None] = {}
    digests: dict[str, str] = {}
    with new_directory(out, MANIFESTS["figures"]) as directory:
        for prefix, chart in charts:
            for name, files in drawings(chart):
                stem = free_name(f"{prefix} {name}", stems)
                for form, content in files.items():
                    (directory / f"{stem}.{form}").write_bytes(content)
                    digests[f"{stem}.{form}"] = sha256(content).hexdigest()
        write_manifest(directory, "figures", identity, content_id(digests), {"figures": [*stems]})
    return True


def _charts(document: Document) -> Iterator[tuple[str, Chart]]:
    """(start of the file names, chart) of everything that the page draws in the main metric."""
    styles = run_styles(document)
    for track in document.tracks:
        for chart in track_charts(document, track, styles):
            yield track.title, chart
    for space in document.spatial_tracks:
        for measure in MEASURES:
            for histogram in angle_histograms(space, measure, styles):
                yield space.title, histogram


def free_name(text: str, taken: dict[str, None]) -> str:
    """A name of letters, digits and dashes that is not taken; it then is.

    >>> taken = {}
    >>> free_name("Last model: rm", taken), free_name("last model (rm)", taken)
    ('last-model-rm', 'last-model-rm-2')
    """
    name = _OTHER.sub("-", text.lower()).strip("-")[:_LONGEST_NAME] or "unnamed"
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken[free] = None
    return free
