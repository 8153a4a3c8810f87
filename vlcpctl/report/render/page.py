"""The report as one self-contained HTML file, with inline style and charts."""

from __future__ import annotations

from importlib.resources import files

from vlcpctl.report.document import TITLE, Document, definitions_table, verdicts_table
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render import figures
from vlcpctl.report.render.forgotten import forgotten_section
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.render.transfer import by_task, transfer
from vlcpctl.report.scores.runs import Track
from vlcpctl.report.tables.angles import MEASURES, SpatialTrack
from vlcpctl.report.tables.comparison import comparison_tables, ordered_runs
from vlcpctl.report.tables.matrices import matrix_table


def page(document: Document) -> str:
    """The text of report.html."""
    style = files("vlcpctl.report").joinpath("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element("h1", TITLE),
        element("p", _about(document), class_="about"),
        _attention(document.notes),
        *_published(document),
        html_table(verdicts_table(document.verdicts)) if document.verdicts else "",
        *(_section(document, track) for track in document.tracks),
        *(_spatial_section(space) for space in document.spatial_tracks),
        forgotten_section(document),
        html_table(definitions_table()) if document.tracks else "",
    )
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _about(document: Document) -> str:
    if not any(track.runs for track in document.tracks):
        names = {
            pair.run for spatial_track in document.spatial_tracks for pair in spatial_track.pairs
        }
        names |= {one.run for track in document.tracks for one in track.transfers}
        return _counted([len(names)], "run")
    runs = sorted({run.name for track in document.tracks for run in track.runs})
    seeds = {len(run.seeds) for track in document.tracks for run in track.runs}
    tasks = {run.steps for track in document.tracks for run in track.runs}
    return ", ".join(
        (_counted([len(runs)], "run"), _counted(tasks, "step"), f"{_counted(seeds, 'seed')} each")
    )


def _counted(counts: list[int] | set[int], noun: str) -> str:
    """Such as "9 steps" or "1 to 3 seeds"."""
    low, high = min(counts, default=0), max(counts, default=0)
    amount = str(high) if low == high else f"{low} to {high}"
    return f"{amount} {noun}{'' if high == 1 else 's'}"


def _attention(notes: tuple[str, ...]) -> Markup:
    if not notes:
        return Markup("")
    return element(
        "div", element("ul", *(element("li", note) for note in notes)), class_="attention"
    )


def _published(document: Document) -> list[Markup]:
    """The chosen tables of papers, first of all."""
    return [
        joined(element("h2", heading), *map(html_table, tables))
        for heading, tables in document.published_sections()
    ]


def _section(document: Document, track: Track) -> Markup:
    key = document.key(track)
    runs = ordered_runs(track, key)
    tables = [html_table(table) for table in comparison_tables(track, key, document.galleries)]
    shows_own = "own" in document.galleries
    outside = [html_table(table) for table in document.outside_tables(track, has_every_metric=True)]
    parts = [element("h2", track.title), *tables]
    charts = figures.guards(document.guards(track), runs, key)
    if charts:  # before the matrices, which are long for many tasks
        parts += [element("h3", f"{key} on guards"), outside.pop(0), *charts]
    if runs:
        parts += [
            element("h3", f"{key} over the steps"),
            figures.curves(runs, key, _curve_gallery(document, track)),
        ]
    if runs and shows_own:
        parts += [
            element("h3", f"{key} by step and task"),
            figures.heatmaps(runs, key, document.galleries),
            _matrix_tables(document, track),
            element("h3", f"{key} per task, last model"),
            figures.bars(runs, key),
            by_task(track, key, runs),
        ]
    return joined(*parts, *outside, *transfer(document, track, runs))


def _spatial_section(spatial_track: SpatialTrack) -> Markup:
    parts = [element("h2", spatial_track.title)]
    for measure in MEASURES:
        parts.append(element("h3", measure.sentence))
        parts += figures.angle_histograms(spatial_track, measure)
        parts += [html_table(table) for table in spatial_track.tables_of(measure)]
    return joined(*parts)


def _curve_gallery(document: Document, track: Track) -> str:
    has_merged = any("merged" in run.galleries for run in track.runs)
    return "merged" if has_merged and "merged" in document.galleries else "own"


def _matrix_tables(document: Document, track: Track) -> Markup:
    key = document.key(track)
    runs = [run for run in ordered_runs(track, key) if run.steps]
    tables = (html_table(matrix_table(run, key, document.galleries)) for run in runs)
    return element("details", element("summary", "The same numbers as tables"), *tables)
