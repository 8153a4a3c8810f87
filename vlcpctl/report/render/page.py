"""The report as one self-contained HTML file, with inline style, script and charts."""

from __future__ import annotations

import math
from importlib.resources import files

from vlcpctl.report.document import TITLE, Document, definitions_table
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render import chart_blocks, figures
from vlcpctl.report.render.cards import stability_html, training_html
from vlcpctl.report.render.forgotten import forgotten_section
from vlcpctl.report.render.gates import gates_html
from vlcpctl.report.render.heat_table import heat_table
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.render.metric_words import spelled_out
from vlcpctl.report.render.run_list import run_list
from vlcpctl.report.render.transfer import by_task, transfer
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.tables.angles import MEASURES, SpatialTrack
from vlcpctl.report.tables.comparison import comparison_tables, ordered_runs
from vlcpctl.report.tables.matrices import MOST_SHOWN, matrix_table
from vlcpctl.report.tables.table import Table

_MOST_CELLS = 300_000  # of all matrices of the page, half of them empty: 3 MB
_MOST_ROWS = 60  # of a table of data outside the stream that is shown at once
_LEAST_SHOWN = 10  # steps and tasks of a matrix


def page(document: Document) -> str:
    """The text of report.html.

    It reads completely without its script, which hides, sorts and copies.
    """
    styles = figures.run_styles(document)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("style", _file("style.css")),
    )
    body = element(
        "body",
        element("h1", TITLE),
        element("p", _about(document), class_="about"),
        gates_html(document),
        _attention(document.notes),
        *_published(document),
        run_list(document, styles),
        element(
            "main",
            *(_section(document, track, styles) for track in document.tracks),
            *(_spatial_section(space, styles) for space in document.spatial_tracks),
            training_html(document, styles),
            forgotten_section(document),
        ),
        html_table(definitions_table()) if document.tracks else "",
        element("script", _file("page.js")),
    )
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _file(name: str) -> Markup:
    return Markup(files("vlcpctl.report").joinpath(name).read_text(encoding="utf-8"))


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


def _section(document: Document, track: Track, styles: figures.Styles) -> Markup:
    key = document.key(track)
    runs = ordered_runs(track, key)
    tables = [html_table(table) for table in comparison_tables(track, key, document.galleries)]
    outside = [_folded(table) for table in document.outside_tables(track, has_every_metric=True)]
    parts = [element("h2", track.title), _keys(track), *tables]
    charts, note = figures.guards(document.guards(track), key, styles)
    if charts:  # before the matrices, which are long for many tasks
        drawn = [chart_blocks.lines_block(one, key, has_panels=False) for one in charts]
        parts += [element("h3", f"{key} on guards"), outside.pop(0), *drawn]
        parts += [element("p", note)] if note else []
    if runs:
        gallery = figures.curve_gallery(document, track)
        chart = figures.curves(runs, key, gallery, styles)
        parts += [element("h3", f"{key} over the steps"), chart_blocks.lines_block(chart, key)]
    if runs and "own" in document.galleries:
        parts.append(stability_html(track, key, styles))
        parts += [*_by_task(document, track, runs, styles), by_task(track, key, runs)]
    return joined(*parts, *outside, *transfer(document, track, styles))


def _folded(table: Table) -> Markup:
    """The table, folded if it is long: what follows is not pushed off the page."""
    if sum(len(group.rows) for group in table.groups) <= _MOST_ROWS:
        return html_table(table)
    return element("details", element("summary", table.title), html_table(table))


def _keys(track: Track) -> Markup:
    """The meaning of the metric keys, above the first table that has them."""
    lines = [
        part
        for names, meaning in spelled_out(track.keys)
        for part in (element("dt", names), element("dd", meaning))
    ]
    return element("dl", *lines, class_="keys") if lines else Markup("")


def _by_task(
    document: Document, track: Track, runs: list[RunScores], styles: figures.Styles
) -> list[Markup]:
    key = document.key(track)
    matrices = sum(bool(run.steps) for one in document.tracks for run in one.runs)
    most = min(MOST_SHOWN, max(_LEAST_SHOWN, math.isqrt(_MOST_CELLS // max(1, matrices))))
    tables = {
        run.name: matrix_table(run, key, document.galleries, most) for run in runs if run.steps
    }
    parts = [element("h3", f"{key} by step and task")]
    heat = figures.heat_maps(runs, key, document.galleries, most)
    if heat is not None:
        parts.append(chart_blocks.heat_block(heat, tables, styles))
        tables = {name: tables[name] for name in tables.keys() - {one.run for one in heat.maps}}
    highest = 1.0 if heat is None else heat.highest
    others = [heat_table(tables[name], highest) for name in sorted(tables)]
    bars = figures.bars(runs, key, styles)
    parts += others
    if bars is not None:
        parts += [
            element("h3", f"{key} per task, last model"),
            chart_blocks.bars_block(bars, styles),
        ]
    return parts


def _spatial_section(spatial_track: SpatialTrack, styles: figures.Styles) -> Markup:
    parts = [element("h2", spatial_track.title)]
    for measure in MEASURES:
        parts.append(element("h3", measure.sentence))
        charts = figures.angle_histograms(spatial_track, measure)
        parts += [chart_blocks.histograms_block(one, styles) for one in charts]
        parts += [html_table(table) for table in spatial_track.tables_of(measure)]
    return joined(*parts)
