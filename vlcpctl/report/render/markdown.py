"""A report as GitHub-flavoured Markdown, for issues, notes, model cards and pages of jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from vlcpctl.core.console import warn
from vlcpctl.core.words import as_markdown
from vlcpctl.report.document import TITLE, Document, definitions_table, verdicts_table
from vlcpctl.report.gates.verdicts import overall
from vlcpctl.report.render.forgotten import forgotten_sections
from vlcpctl.report.tables.table import Table, TableCell

VARIABLE = "GITHUB_STEP_SUMMARY"

_MOST_SHOWN = 200  # verdicts, and notes: GitHub refuses more than 1 MiB per step
# What would start a list or a rule at the start of a line.
_START = re.compile(r"^([-+=]|\d+(?=[.)]))")


def markdown(document: Document) -> str:
    """The text of report.md: verdicts, notes, each section's heading and tables, definitions."""
    parts = [f"# {as_markdown(TITLE)}", *verdicts_markdown(document)]
    parts += [f"> {_line_of(note)}" for note in document.notes]
    sections = [*document.published_sections(), *document.sections(has_every_metric=True)]
    for heading, tables in [*sections, *forgotten_sections(document)]:
        parts += [f"## {as_markdown(heading)}"] if heading else []
        parts += [table_text(table) for table in tables]
    return "\n\n".join([*parts, table_text(definitions_table())]) + "\n"


def verdicts_markdown(document: Document) -> list[str]:
    """Blocks with the verdict on all conditions, baselines and guards, and each condition."""
    lines = document.compared_with()
    compared = [_bullets(lines)] if lines else []
    if not document.verdicts:
        return compared
    line = f"**{as_markdown(overall(document.verdicts))}**"
    return [line, *compared, table_text(verdicts_table(document.verdicts))]


def append_step_summary(document: Document) -> None:
    """Append a summary of the verdicts to the file that GITHUB_STEP_SUMMARY names, if it is set.

    Where the file cannot be written, a warning says so: the verdicts do not depend on it.
    """
    path = os.environ.get(VARIABLE)
    if not path or not document.verdicts:
        return
    try:
        # Opening a pipe that has no reader must not block.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        with open(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(step_summary(document))
    except OSError as error:
        warn(f"cannot write the summary to {path} ({VARIABLE}): {error.strerror or error}")


def step_summary(document: Document) -> str:
    """A line with the outcome, the table of verdicts, then the notes of the report."""
    verdicts = document.verdicts
    shown = verdicts
    if len(verdicts) > _MOST_SHOWN:
        shown = tuple(sorted(verdicts, key=lambda one: one.passes)[:_MOST_SHOWN])
    parts = [
        f"## {as_markdown(TITLE)}",
        f"**{overall(verdicts)}**",
        table_text(verdicts_table(shown)),
    ]
    if len(shown) < len(verdicts):
        parts.append(f"{len(verdicts) - len(shown)} more are not shown.")
    if document.notes:
        parts.append(_bullets(document.notes[:_MOST_SHOWN]))
    return "\n\n".join(parts) + "\n\n"


def table_text(table: Table) -> str:
    """The table under a heading, and its notes as a list."""
    heads = [as_markdown(column.title) for column in table.columns]
    marks = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [_line(heads), _line(marks)]
    for group in table.groups:
        if group.name:
            lines.append(_line([f"*{as_markdown(group.name)}*"] + [""] * (len(heads) - 1)))
        lines += [_line([_cell(cell) for cell in row]) for row in group.rows]
    notes = ["", _bullets(table.every_note)] if table.every_note else []
    return "\n".join([f"### {as_markdown(table.title)}", "", *lines, *notes])


def _bullets(lines: Iterable[str]) -> str:
    """The lines as a list."""
    return "\n".join(f"- {_line_of(line)}" for line in lines)


def _line_of(text: str) -> str:
    """The as_markdown text for the start of a line: "1. a" is not the first item of a list."""
    # A number starts a list because of the mark behind it, so the mark is as_markdown.
    return _START.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", as_markdown(text)
    )


def _cell(cell: TableCell) -> str:
    text = as_markdown(cell.line)
    return f"**{text}**" if text and (cell.is_best or cell.is_strong) else text


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
