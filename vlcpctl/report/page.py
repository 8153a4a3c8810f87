"""The report as one self-contained HTML file, with inline style, script and charts.

The templates say how the parts look; this module selects what is on the page, in which order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from vlcpctl.core.words import counted
from vlcpctl.report.angles import MEASURES
from vlcpctl.report.charts import LineChart
from vlcpctl.report.drawn import Styles, TrackCharts, histograms, run_styles, track_charts
from vlcpctl.report.forgotten import forgotten_tables
from vlcpctl.report.formats import paper_name
from vlcpctl.report.gates import overall, verdicts_table
from vlcpctl.report.html import render, source
from vlcpctl.report.markup import Markup
from vlcpctl.report.report import TITLE, Document
from vlcpctl.report.scores import GROUPS, Run, Track, over_seeds
from vlcpctl.report.table import fixed
from vlcpctl.report.tables import (
    MOST_SHOWN,
    comparison_tables,
    definitions_table,
    headline,
    matrix_table,
    ordered_runs,
)
from vlcpctl.report.training import loss_charts, training_tables

_MOST_CELLS = 300_000  # of all matrices of the page, half of them empty: 3 MB
_LEAST_SHOWN = 10  # steps and tasks of a matrix
_FEW_TABLES, _FEW_TASKS = 6, 20  # matrices that are shown in full at once
_FEW_RUNS = 8  # more have small multiples beside the chart of all, and a table instead of bars
_MOST_BARS = 40  # tasks
_MOST_NAMED = 4  # of more runs, the first sentence names the highest and the lowest

_part = partial(render, "parts.html")


def page(document: Document) -> str:
    """The text of report.html."""
    styles = run_styles(document)
    verdicts = document.verdicts
    first = document.tracks[0] if document.tracks else None
    sentence = opening_sentence(document, first) if first else ""
    body: list[Markup] = []
    lead: LineChart | None = None
    for track in document.tracks:
        charts, is_opened = track_charts(document, track, styles), bool(sentence) and track is first
        lead = charts.curves if is_opened else lead
        body += _track(document, track, styles, charts, is_opened=is_opened)
    for heading, tables in document.calibration_sections():
        body += [_part("heading", heading), *(_part("folding", one) for one in tables)]
    for space in document.spatial_tracks:
        body.append(_part("heading", space.title))
        for measure in MEASURES:
            body.append(_part("heading", measure.sentence, 3))
            drawn = histograms(space, measure)
            body += [_part("histograms", one, styles[run]) for run, one in drawn.items()]
            body += [_part("table", one) for one in space.tables_of(measure)]
    return render(
        "report.html",
        "page",
        title=TITLE,
        style=source("style.css"),
        script=source("page.js"),
        verdict=overall(verdicts) if verdicts else "",
        compared=document.compared_with(),
        conditions=verdicts_table(verdicts) if verdicts else None,
        sentence=sentence,
        chart=lead,
        notes=document.notes,
        published=document.published_sections(),
        runs=list(_run_list(document, styles)),
        body=[*body, *_training(document, styles), *_forgotten(document)],
        definitions=definitions_table() if document.tracks else None,
    )


def opening_sentence(document: Document, track: Track) -> str:
    """Final scores of the runs that learn in sequence, highest first; empty without such a run.

    What a run lost is beside what it had learned: one that learns little has little to forget.
    """
    key = document.key(track)
    chains = [run for run in track.runs if run.steps and not run.final_only]
    is_merged = any("merged" in run.galleries for run in chains)
    name = "merged_final" if is_merged else "own_final"
    finals = {run: found.mean for run in track.runs if (found := run.summary(key, name))}
    ranked = sorted(finals, key=lambda run: -finals[run])
    trained = [run for run in ranked if run in chains]
    if not trained:
        return ""
    is_many = len(trained) > _MOST_NAMED
    shown = [*trained[:2], trained[-1]] if is_many else trained
    shown += [run for run in ranked if run.group == GROUPS[0] and run not in chains]
    said = "; ".join(f"{fixed(finals[run])} for {run.name}{_lost(run, key)}" for run in shown)
    where = "the merged gallery" if is_merged else "the tasks' own galleries"
    of = f", the highest and lowest of {len(trained)} runs," if is_many else ""
    steps = {run.steps for run in chains}
    after = f"{'up to ' if len(steps) > 1 else ''}{counted(max(steps), 'task')}"
    return f"After {after}, {paper_name(key)} on {where}{of} is {said}."


def _lost(run: Run, key: str) -> str:
    """What the run lost on earlier tasks, of what it had learned; empty if that is undefined."""
    change, earlier = run.summary(key, "bwt_gem"), run.counted[:-1]
    if change is None:
        return ""
    diagonals = (float(np.mean(seed[1:][earlier, earlier])) for seed in run.own[key])
    learned = over_seeds(diagonals)
    assert learned is not None  # the change is of the same scores
    verb, of = ("lost", "of") if change.mean <= 0 else ("gained", "on")
    points = f"{fixed(abs(change.mean))} {of} {fixed(learned.mean)}"
    return f", which {verb} {points} learned on earlier tasks"


def _run_list(document: Document, styles: Styles) -> Iterator[tuple[Any, ...]]:
    """(name, style, whether its line is level, score, forgetting) of every run, for page.js.

    Score and forgetting are those of the first track that has the run; None: not defined.
    """
    found: dict[str, tuple[str, Run]] = {}
    for track in document.tracks:
        for run in track.runs:
            found.setdefault(run.name, (document.key(track), run))
    for name, style in styles.items():
        if name not in found:
            yield name, style, False, None, None
            continue
        key, run = found[name]
        score, forgetting = headline(run, key), run.summary(key, "forgetting_max")
        is_known = score > float("-inf")
        lost = None if forgetting is None else forgetting.mean
        yield name, style, run.final_only, score if is_known else None, lost


def _most(document: Document) -> int:
    """The steps and tasks that a matrix shows, of which the page has one for each run."""
    matrices = sum(bool(run.steps) for one in document.tracks for run in one.runs)
    return min(MOST_SHOWN, max(_LEAST_SHOWN, math.isqrt(_MOST_CELLS // max(1, matrices))))


def _track(
    document: Document, track: Track, styles: Styles, charts: TrackCharts, *, is_opened: bool
) -> Iterator[Markup]:
    """The section of a track: its tables, and the charts between them."""
    key = document.key(track)
    name = paper_name(key)
    yield _part("heading", track.title)
    yield from (_part("table", one) for one in comparison_tables(track, key))
    # Before the matrices, which are long for many tasks.
    yield from (_part("folding", one) for one in document.outside_tables(track))
    is_many = charts.curves is not None and len(charts.curves.lines) > _FEW_RUNS
    if charts.curves and (is_many or not is_opened):
        yield _part("heading", f"{name} over the steps", 3)
        yield from [] if is_opened else [_part("lines", charts.curves)]
        yield from [_part("each_run", charts.curves.panels(), name)] if is_many else []
    if track.runs:
        yield from _by_task(document, track, styles, charts)


def _by_task(
    document: Document, track: Track, styles: Styles, charts: TrackCharts
) -> Iterator[Markup]:
    key, most = document.key(track), _most(document)
    name, runs = paper_name(key), ordered_runs(track, key)
    if charts.kept:
        yield _part("heading", "Stability against plasticity", 3)
        yield _part("points", charts.kept)
    yield _part("heading", f"{name} by step and task", 3)
    # Of many runs or tasks, the tables are small and without numbers until they are opened.
    trained = [run for run in runs if run.steps]
    is_small = len(trained) <= _FEW_TABLES
    is_small &= all(len(run.tasks) <= _FEW_TASKS for run in trained)
    maps = [(run.name, styles[run.name], matrix_table(run, key, most)) for run in trained]
    yield _part("matrices", maps, charts.heat, is_small)
    chart = charts.bars
    if chart and len(chart.grids) <= _FEW_RUNS and len(chart.grids[0].columns) <= _MOST_BARS:
        yield _part("heading", f"{name} per task, last model", 3)
        yield _part("bars", chart)


def _training(document: Document, styles: Styles) -> Iterator[Markup]:
    """What checkpoints record, and the settings in which the runs differ."""
    cards, settings = document.cards, document.settings
    tables = training_tables(cards, settings)
    if cards or tables:
        yield _part("heading", "Training" if cards else "Settings")
    yield from (_part("wrapping", one) for one in tables)
    if charts := loss_charts(cards, styles) if cards else []:
        shown = {one.name for chart in charts for one in chart.lines}
        legend = [(name, style, False, "") for name, style in styles.items() if name in shown]
        yield _part("losses", charts, legend)


def _forgotten(document: Document) -> Iterator[Markup]:
    tables = forgotten_tables(document.forgotten, document.tracks, document.key)
    if tables:
        yield _part("heading", "What was forgotten")
        yield _part("examples_link", "forgotten.html")
        yield from (_part("table", one) for one in tables)
