"""A written report: a directory with the page, the text and the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import MANIFESTS, is_artifact
from vlcpctl.files.outputs import new_directory
from vlcpctl.report.document import Document
from vlcpctl.report.forgotten.changes import DIRECTORY
from vlcpctl.report.render.forgotten import forgotten_pages
from vlcpctl.report.render.markdown import markdown
from vlcpctl.report.render.page import page
from vlcpctl.report.summary_json import as_text


def write_report(document: Document, identity: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write the report directory; False if it already holds this very report.

    Raises OutputExists if `out` holds anything else, unless `force`.
    """
    if already_made(out, "report", identity, force=force):
        return False
    summary = as_text(document, identity)
    with new_directory(out, is_artifact) as directory:
        (directory / "report.html").write_text(page(document), encoding="utf-8")
        (directory / "report.md").write_text(markdown(document), encoding="utf-8")
        _write_pages(document, directory / DIRECTORY)
        (directory / MANIFESTS["report"]).write_text(summary, encoding="utf-8")
    return True


def _write_pages(document: Document, directory: Path) -> None:
    """The pages of what was forgotten, if there are any."""
    for name, text in forgotten_pages(document):
        directory.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
