"""The report as one self-contained HTML file, with inline style, script and charts.

The template report.html says how the page reads; this module selects what is on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from vlcpctl.report.angles import MEASURES
from vlcpctl.report.cards.runs import Cards
from vlcpctl.report.cards.settings import differing
from vlcpctl.report.cards.tables import (
    cost_per_task_table,
    cost_table,
    provenance_facts,
    run_tables,
    settings_table,
)
from vlcpctl.report.charts import BarChart, HeatChart, RunStyle
from vlcpctl.report.gates import overall, verdicts_table
from vlcpctl.report.markup import Markup
from vlcpctl.report.render.figures import (
    Styles,
    angle_histograms,
    data_charts,
    loss_charts,
    run_styles,
    stability_chart,
    track_charts,
)
from vlcpctl.report.render.forgotten import forgotten_section
from vlcpctl.report.render.metric_words import spelled_out
from vlcpctl.report.render.opening import opening_sentence
from vlcpctl.report.render.templates import FEW_RUNS, render, source
from vlcpctl.report.report import TITLE, Document
from vlcpctl.report.scores import Curve, Run, Track
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, fixed
from vlcpctl.report.tables import (
    MOST_SHOWN,
    comparison_tables,
    definitions_table,
    every_step_tables,
    headline,
    matrix_table,
    ordered_runs,
    per_task_tables,
    stability_points,
    stability_table,
)

_MOST_CELLS = 300_000  # of all matrices of the page, half of them empty: 3 MB
_LEAST_SHOWN = 10  # steps and tasks of a matrix
_FEW_TABLES, _FEW_TASKS = 6, 20  # matrices that are shown in full at once
_MOST_BARS = 40  # tasks
# Of the charts in other metrics than the report's own; the tables beside them have all numbers.
_MOST_CHARTS, _MOST_POINTS = 24, 3000


def page(document: Document) -> str:
    """The text of report.html."""
    styles = run_styles(document)
    verdicts = document.verdicts
    return render(
        "report.html",
        "page",
        title=TITLE,
        style=Markup(source("style.css")),
        script=Markup(source("page.js")),
        about=_about(document),
        gates={
            "words": overall(verdicts) if verdicts else "",
            "compared": document.compared_with(),
            "table": verdicts_table(verdicts),
        },
        opening=_opening(document, styles),
        notes=document.notes,
        published=document.published_sections(),
        runs=list(_run_list(document, styles)),
        tracks=[_track(document, track, styles) for track in document.tracks],
        calibration=document.calibration_sections(),
        spaces=[
            {
                "title": space.title,
                "measures": [
                    {
                        "sentence": measure.sentence,
                        "charts": angle_histograms(space, measure, styles),
                        "tables": space.tables_of(measure),
                    }
                    for measure in MEASURES
                ],
            }
            for space in document.spatial_tracks
        ],
        trained=_training(document, document.ordered_cards, styles),
        forgotten=forgotten_section(document),
        definitions=definitions_table(),
    )


def _opening(document: Document, styles: Styles) -> dict[str, Any] | None:
    """The sentence about the first track, and its chart of forgetting; None without either."""
    for track in document.tracks[:1]:
        sentence = opening_sentence(document, track)
        if sentence:
            return {"sentence": sentence, "chart": track_charts(document, track, styles).curves}
    return None


def _about(document: Document) -> str:
    if not any(track.runs for track in document.tracks):
        names = {pair.run for space in document.spatial_tracks for pair in space.pairs}
        names |= {run.name for track in document.tracks for run in track.every if run.outside}
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


def _run_list(
    document: Document, styles: Styles
) -> Iterator[tuple[str, RunStyle, bool, dict[str, str | None]]]:
    """(name, style, whether its line is level, facts by attribute) of every run.

    The facts are its group, its method, and its score and forgetting where these are defined, in
    the first track that has the run.
    """
    found: dict[str, tuple[Track, Run]] = {}
    for track in document.tracks:
        for run in track.runs:
            found.setdefault(run.name, (track, run))
    for name, style in styles.items():
        if name not in found:
            yield name, style, False, {}
            continue
        track, run = found[name]
        key = document.key(track)
        score, forgetting = headline(run, key), run.summary(key, "forgetting_max")
        facts = {
            "data-group": run.group,
            "data-method": f"{run.method}, {run.buffer}" if run.buffer else run.method,
            "data-score": f"{score:.6g}" if score > float("-inf") else None,
            "data-forgetting": None if forgetting is None else f"{forgetting.mean:.6g}",
        }
        yield name, style, run.final_only, facts


def _track(document: Document, track: Track, styles: Styles) -> dict[str, Any]:
    """The section of a track: its charts, and the tables around them."""
    key = document.key(track)
    runs = ordered_runs(track, key)
    matrices = sum(bool(run.steps) for one in document.tracks for run in one.runs)
    most = min(MOST_SHOWN, max(_LEAST_SHOWN, math.isqrt(_MOST_CELLS // max(1, matrices))))
    charts = track_charts(document, track, styles, most)
    facts = {
        "title": track.title,
        "key": key,
        "meanings": spelled_out(track.keys),
        "tables": comparison_tables(track, key),
        "charts": charts,
        "outside": document.outside_tables(track, has_every_metric=True),
        "has_runs": bool(runs),
        "has_matrices": bool(runs),
        **_transfer(document, track, styles),
    }
    if not facts["has_matrices"]:
        return facts
    tables = {run.name: matrix_table(run, key, most) for run in runs if run.steps}
    points, missing = stability_points(track, key)
    drawn = {one.run for one in charts.heat.panels} if charts.heat else set()
    return facts | {
        "stability": stability_chart(points, missing, key, styles),
        "stability_table": stability_table(points, key),
        "matrices": tables,
        "is_small": charts.heat is not None and _is_small(charts.heat),
        "other_matrices": [tables[name] for name in sorted(tables.keys() - drawn)],
        "final_table": None if charts.bars is None else _final_table(charts.bars),
        "per_task": per_task_tables(track, key, runs),
    }


def _is_small(chart: HeatChart) -> bool:
    are_few = len(chart.panels) <= _FEW_TABLES
    return are_few and all(len(one.tasks) <= _FEW_TASKS for one in chart.panels)


def _final_table(chart: BarChart) -> Table | None:
    """Of many runs or tasks: a row for each run, with the last model's score on each task."""
    if len(chart.panels) <= FEW_RUNS and len(chart.tasks) <= _MOST_BARS:
        return None
    # The number of a task, such as "07": names of many tasks are wider than their scores.
    numbers = (task[: len(task) - len(task.lstrip("0123456789"))] for task in chart.tasks)
    heads = (number or task for number, task in zip(numbers, chart.tasks, strict=True))
    columns = (Column("run", is_number=False), *map(Column, heads))
    rows = tuple(
        (TableCell(one.name), *(_score(value) for value in one.final)) for one in chart.panels
    )
    return Table(f"{chart.title}, own galleries", columns, (RowGroup("", rows),))


def _score(value: float) -> TableCell:
    return TableCell("-") if math.isnan(value) else TableCell(fixed(value, 1), value=value)


def _transfer(document: Document, track: Track, styles: Styles) -> dict[str, Any]:
    """Charts and tables of data outside the stream in every metric.

    Guards have charts in the main metric elsewhere: here are those of other data.
    """
    tables = every_step_tables(track)
    if not tables:
        return {"every_step": tables}
    key = document.key(track)
    curves = [one for one in document.curves if one.track is track and one.task is None]
    guards = {id(one) for one in document.guards(track)}
    others = _with_steps([one for one in curves if id(one) not in guards])
    curves = _with_steps(curves)
    keys = [one for one in track.keys if one != key]
    points = sum(len(one.steps) for one in curves)
    charts_each = len({one.data for one in curves})
    room = min(_MOST_CHARTS // max(charts_each, 1), _MOST_POINTS // max(points, 1))
    more = [data_charts(curves, one, styles) for one in keys[:room]]
    return {
        "every_step": tables,
        "others": data_charts(others, key, styles),
        "other_metrics": [one for one in more if any(one)],
        "left_out": f"Drawn: {room} of {len(keys)} other metrics." if room < len(keys) else "",
    }


def _with_steps(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of data on which any model was evaluated after several steps."""
    data = {one.data for one in curves if len(one.steps) > 1}
    return [one for one in curves if one.data in data]


def _training(document: Document, cards: Cards | None, styles: Styles) -> dict[str, Any]:
    """What checkpoints record, and the settings in which the runs differ."""
    settings = document.ordered_settings
    differ = settings_table(settings)
    if cards is None:
        return {"differ": differ, "runs": []}
    names = differing(settings)
    return {
        "differ": differ,
        "cost": cost_table(cards),
        "per_task": cost_per_task_table(cards),
        "losses": loss_charts(cards),
        "styles": styles,
        "runs": [
            (
                run.name,
                "; ".join(provenance_facts(run)),
                *run_tables(cards, run, names, settings.get(run.name, {})),
            )
            for run in cards.runs
        ],
    }
