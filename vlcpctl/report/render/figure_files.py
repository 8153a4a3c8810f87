"""A directory with the charts of a report as files for papers: PDF, SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from vlcpctl.core import console
from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.core.errors import BadInput
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import MANIFESTS, write_manifest
from vlcpctl.report.charts.glyphs import missing_note
from vlcpctl.report.charts.paper import Chart, drawings, names
from vlcpctl.report.document import Document
from vlcpctl.report.render import figures
from vlcpctl.report.render.file_names import free_name
from vlcpctl.report.scores.runs import Track
from vlcpctl.report.tables.angles import MEASURES
from vlcpctl.report.tables.comparison import ordered_runs

_MOST_CHARTS = 200  # each takes about a second


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
    note = missing_note(text for _, chart in charts for text in names(chart))
    if note is not None:
        console.warn(note)
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
    """(start of the file names, chart) of everything that the page draws."""
    styles = figures.run_styles(document)
    for track in document.tracks:
        for chart in _track_charts(document, track, styles):
            yield track.title, chart
    for space in document.spatial_tracks:
        for measure in MEASURES:
            for histogram in figures.angle_histograms(space, measure):
                yield space.title, histogram


def _track_charts(document: Document, track: Track, styles: figures.Styles) -> Iterator[Chart]:
    key = document.key(track)
    runs = ordered_runs(track, key)
    guards, _ = figures.guards(document.guards(track), key, styles)
    yield from guards
    curves = figures.curves(runs, key, figures.curve_gallery(document, track), styles)
    if any(one.points for one in curves.series):
        yield curves
    if "own" in document.galleries:
        heat = figures.heat_maps(runs, key, document.galleries)
        bars = figures.bars(runs, key, styles)
        yield from (chart for chart in (heat, bars) if chart is not None)
