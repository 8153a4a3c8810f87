"""Build a document from rows, and write it as a report directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.core.rows import Row
from vlcpctl.report.document import TITLE, Document, check_metric, definitions_table
from vlcpctl.report.gates import judge, parse_gate
from vlcpctl.report.render.markdown import markdown
from vlcpctl.report.render.page import page
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.missing import notes, require_complete
from vlcpctl.report.summary_json import as_json
from vlcpctl.report.tables.angles import collect_spatial_tracks

GALLERIES = {"own": ("own",), "merged": ("merged",), "both": ("own", "merged")}


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a report, as `forgetting-report` takes them."""

    metric: str | None = None
    gallery: str = "both"
    runs: Sequence[str] = ()
    fail_if: Sequence[str] = ()
    allow_missing: bool = False


def build(rows: Sequence[Row], request: Request) -> Document:
    """Build the report of these rows.

    Raises UsageError for an unknown gallery, run, metric or condition, and BadInput if rows of a
    run contradict each other or (without `allow_missing`) are missing.
    """
    if request.gallery not in GALLERIES:
        raise UsageError(f"--gallery: {unknown_name('gallery', request.gallery, GALLERIES)}")
    chosen = _selected(rows, request)
    tracks = tuple(collect(row for row in chosen if row.since is None))
    check_metric(request.metric, tracks)
    if not request.allow_missing:
        for track in tracks:
            require_complete(track)
    document = Document(
        tracks,
        request.metric,
        GALLERIES[request.gallery],
        notes(tracks),
        spatial_tracks=collect_spatial_tracks(row for row in chosen if row.since is not None),
    )
    keys = dict.fromkeys(key for track in tracks for key in track.keys)
    gates = [parse_gate(text, keys) for text in request.fail_if]
    return replace(document, verdicts=tuple(judge(gates, tracks, document.key)))


def identity(rows: Sequence[Row], request: Request) -> dict[str, Any]:
    """What determines a written report: rows and options, not the order or files of the rows."""
    texts = []
    for row in rows:
        fields = asdict(row)
        del fields["place"]
        texts.append(canonical_json(fields))
    wanted = asdict(request)
    wanted["runs"], wanted["fail_if"] = sorted(request.runs), list(request.fail_if)
    return {"rows": content_id(sorted(texts)), **wanted}


def _selected(rows: Sequence[Row], request: Request) -> list[Row]:
    known = {row.run for row in rows}
    for name in request.runs:
        if name not in known:
            raise UsageError(f"--run: {unknown_name('run', name, known)}")
    wanted = set(request.runs) or known
    galleries = GALLERIES[request.gallery]
    # A row of an unknown gallery is kept, so that `collect` refuses it by its place.
    return [
        row
        for row in rows
        if row.run in wanted
        and (row.gallery in galleries or _has_no_gallery(row) or row.gallery not in GALLERIES)
    ]


def _has_no_gallery(row: Row) -> bool:
    """Whether --gallery does not apply: data outside the stream, or a pair of checkpoints."""
    return row.since is not None or (row.gallery == "own" and row.task_step is None)


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
