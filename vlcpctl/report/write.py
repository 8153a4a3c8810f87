"""Writes a report directory: report.html, report.md and summary.json, its manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import MANIFESTS
from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.report.document import TITLE, Document, definitions_table
from vlcpctl.report.markdown import markdown
from vlcpctl.report.page import page
from vlcpctl.report.summary_json import as_json


def write_report(document: Document, identity: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write the report directory; False if it already holds this very report.

    Raises OutputExists if `out` holds anything else, unless `force`.
    """
    if already_made(out, "report", identity, force=force):
        return False
    manifest = MANIFESTS["report"]
    summary = json.dumps(as_json(document, identity), indent=1, ensure_ascii=False, allow_nan=False)
    with new_directory(out, manifest) as directory:
        (directory / "report.html").write_text(page(document), encoding="utf-8")
        (directory / "report.md").write_text(
            markdown(TITLE, document.notes, document.sections(), definitions_table()),
            encoding="utf-8",
        )
        (directory / manifest).write_text(summary + "\n", encoding="utf-8")
    return True
