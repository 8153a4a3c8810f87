"""A summary of the verdicts for the page of a GitHub Actions job."""

from __future__ import annotations

import os

from vlcpctl.core.console import warn
from vlcpctl.core.markdown import escaped
from vlcpctl.report.document import TITLE, Document, verdicts_table
from vlcpctl.report.gates.verdicts import overall
from vlcpctl.report.render.markdown import bullets, table_text

VARIABLE = "GITHUB_STEP_SUMMARY"

_MOST_SHOWN = 200  # verdicts, and notes: GitHub refuses more than 1 MiB per step


def append_step_summary(document: Document) -> None:
    """Append a summary to the file that GITHUB_STEP_SUMMARY names, if it is set.

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
    """Markdown: a line with the outcome, the table of verdicts, then the notes of the report."""
    verdicts = document.verdicts
    problems = [one for one in verdicts if not one.passes]
    shown = verdicts
    if len(verdicts) > _MOST_SHOWN:
        shown = (*problems, *(one for one in verdicts if one.passes))[:_MOST_SHOWN]
    parts = [f"## {escaped(TITLE)}", f"**{overall(verdicts)}**", table_text(verdicts_table(shown))]
    if len(shown) < len(verdicts):
        parts.append(f"{len(verdicts) - len(shown)} more are not shown.")
    if document.notes:
        parts.append(bullets(document.notes[:_MOST_SHOWN]))
    return "\n\n".join(parts) + "\n\n"
