"""What a report writes: its directory, tables, charts, and verdicts for CI systems."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import as_markdown, printable
from vlcpctl.files.finished import already_made
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS, is_artifact, write_manifest
from vlcpctl.files.outputs import is_pipe_or_device, new_directory, new_file, refuse_foreign
from vlcpctl.report.angles import MEASURES
from vlcpctl.report.drawn import histograms, run_styles, track_charts
from vlcpctl.report.figures import Chart, drawings
from vlcpctl.report.forgotten import HEADING, PAGE, forgotten_page, forgotten_tables
from vlcpctl.report.formats import (
    JUNIT_HEAD,
    junit,
    markdown_line,
    markdown_list,
    records_csv,
    table_csv,
    table_latex,
    table_markdown,
)
from vlcpctl.report.gates import Verdict, overall, verdicts_table
from vlcpctl.report.page import page
from vlcpctl.report.papers import FIELDS, paper_table
from vlcpctl.report.report import FACTS, TITLE, Document, facts_csv, summary
from vlcpctl.report.tables import definitions_table

_OTHER = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 100  # characters


def markdown(document: Document) -> str:
    """The text of report.md: verdicts, notes, each section's heading and tables, definitions."""
    parts = [f"# {as_markdown(TITLE)}"]
    lines = document.compared_with()
    compared = [markdown_list(lines)] if lines else []
    if document.verdicts:
        parts.append(f"**{as_markdown(overall(document.verdicts))}**")
        compared.append(table_markdown(verdicts_table(document.verdicts)))
    parts += [*compared, *(f"> {markdown_line(note)}" for note in document.notes)]
    sections = [*document.published_sections(), *document.sections()]
    if tables := forgotten_tables(document.forgotten, document.tracks, document.key):
        sections.append((HEADING, tables))
    for heading, tables in sections:
        parts += [f"## {as_markdown(heading)}"] if heading else []
        parts += [table_markdown(table) for table in tables]
    return "\n\n".join([*parts, table_markdown(definitions_table())]) + "\n"


def write_report(document: Document, about: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write the report directory; False if it already holds this very report.

    Raises OutputExists if `out` holds anything else, unless `force`.
    """
    if already_made(out, "report", about, force=force):
        return False
    found = json.dumps(summary(document, about), ensure_ascii=False, allow_nan=False, indent=1)
    texts = {
        "report.html": page(document),
        "report.md": markdown(document),
        **{f"{one.name}.csv": records_csv(FIELDS, one.records()) for one in document.published},
        PAGE: forgotten_page(document.forgotten, document.names),
        MANIFESTS["report"]: found + "\n",
    }
    with new_directory(out, is_artifact) as directory:
        for name, text in texts.items():
            if text:
                (directory / name).write_text(text, encoding="utf-8")
        with (directory / FACTS).open("w", encoding="utf-8") as file:
            file.writelines(facts_csv(document))
    return True


def write_tables(
    document: Document, about: dict[str, Any], out: Path, form: str, *, force: bool
) -> bool:
    """Write every table as a file of the form "csv" or "latex"; as `write_figures`."""
    texts = table_texts(document, form)
    files = ((name, text.encode()) for name, text in texts)
    return _write_files(out, "tables", {**about, "format": form}, files, force=force)


def write_figures(document: Document, about: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write every chart of the report as NAME.pdf, NAME.svg and NAME.png.

    Returns False if `out` already has these very charts. Raises OutputExists if it holds anything
    else, unless `force`.
    """
    about = {**about, "format": "figures"}
    return _write_files(out, "figures", about, _figures(document), force=force)


def _write_files(
    out: Path, kind: str, about: dict[str, Any], files: Iterable[tuple[str, bytes]], *, force: bool
) -> bool:
    if already_made(out, kind, about, force=force):
        return False
    digests = {}
    with new_directory(out, is_artifact) as directory:
        for name, content in files:
            (directory / name).write_bytes(content)
            digests[name] = sha256(content).hexdigest()
        write_manifest(directory, kind, about, content_id(digests), {"files": [*digests]})
    return True


def table_texts(document: Document, form: str) -> Iterator[tuple[str, str]]:
    """The name and text of every file: first the published tables, then the report's own."""
    taken: dict[str, None] = {}
    is_csv = form == "csv"
    for filled in document.published:
        name = free_name(filled.name, taken)
        if is_csv:
            yield f"{name}.csv", records_csv(FIELDS, filled.records())
        else:
            yield f"{name}.tex", table_latex(paper_table(filled), name)
    # Those that compare runs, without the task x step matrix of each run.
    sections = document.sections(has_settings=False, has_matrices=False) + document.conditions()
    titles = [one.title for one in document.tracks]
    titles += [one.title for one in document.spatial_tracks]
    parts = [title.split(", ") for title in titles]
    shared = set(parts[0]).intersection(*parts) if parts else set()
    # Above the table, for whoever writes its caption.
    chosen = "".join(f"% {printable(one.sentence())}\n" for one in document.choices)
    names = {} if is_csv else _paper_names(document)
    for heading, tables in sections:
        # Such as "retrieval", and of the protocol and the split what another section has not.
        first, *others = heading.split(", ")
        start = " ".join([first, *(part for part in others if part not in shared)])
        for table in tables:
            name = free_name(f"{start} {table.name or table.title}", taken)
            titled = replace(table, title=f"{table.title} ({heading})" if heading else table.title)
            if is_csv:
                yield f"{name}.csv", table_csv(titled)
            else:
                yield f"{name}.tex", chosen + table_latex(titled, name, names)


def _paper_names(document: Document) -> dict[str, str]:
    """The names of runs in a paper; one named after its method has its title, such as "Mod-X"."""
    from vlcpctl.methods import TABLE

    parts = ((name, method.title.partition(": ")) for name, method in TABLE.items())
    titles = {name: title for name, (title, colon, _) in parts if colon and " " not in title}
    return titles | {run: titles.get(name, name) for run, name in document.short_names.items()}


def _figures(document: Document) -> Iterator[tuple[str, bytes]]:
    stems: dict[str, None] = {}
    for prefix, chart in _charts(document):
        for name, files in drawings(chart):
            stem = free_name(f"{prefix} {name}", stems)
            yield from ((f"{stem}.{form}", content) for form, content in files.items())


def _charts(document: Document) -> Iterator[tuple[str, Chart]]:
    """(start of the file names, chart) of everything that the page draws in the main metric."""
    styles = run_styles(document)
    for track in document.tracks:
        for chart in track_charts(document, track, styles):
            if chart is not None:
                yield track.title, chart
    for space in document.spatial_tracks:
        for measure in MEASURES:
            for panels in histograms(space, measure).values():
                yield space.title, panels


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


def check_junit_path(out: Path, report: Path | None) -> None:
    """Refuse a path where `write_junit` may not write, before anything else is written.

    Raises OutputExists if another file is there, and UsageError if it is inside the report.
    """
    real = Path(os.path.realpath(out))
    if report and Path(os.path.realpath(report)) in (real, *real.parents):
        raise UsageError(
            f"--junit {out} is inside --out {report}, which is replaced as a whole; choose a path "
            "outside it"
        )
    if not is_pipe_or_device(out):
        refuse_foreign(out, is_junit, is_file=True, option="--junit")


def write_junit(verdicts: Sequence[Verdict], out: Path) -> None:
    """Write the verdicts to a file, which replaces an earlier one of this kind.

    Raises OutputExists if another file is at `out`, and OSError if it cannot be written.
    """
    # A copy of the old file would be found by a pattern such as **/*.xml, and counted as well.
    with new_file(out, is_junit, keeps=False) as temporary:
        temporary.write_text(junit(verdicts), encoding="utf-8")


def is_junit(path: Path) -> bool:
    """Whether a file starts as those that `write_junit` writes."""
    with path.open("rb") as file:
        return file.read(len(JUNIT_HEAD)) == JUNIT_HEAD.encode()
