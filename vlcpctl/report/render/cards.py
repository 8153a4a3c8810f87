"""The charts and tables of what checkpoints record, and of stability against plasticity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vlcpctl.report.cards.curves import RunLine, TermLines, has_several_tasks, term_lines
from vlcpctl.report.cards.runs import Cards, RunCard
from vlcpctl.report.cards.settings import SettingTexts, differing
from vlcpctl.report.cards.stability import PLASTICITY, STABILITY, stability_points
from vlcpctl.report.cards.tables import (
    cost_per_task_table,
    cost_table,
    provenance_facts,
    run_tables,
    settings_table,
    stability_table,
)
from vlcpctl.report.charts.legend import legend
from vlcpctl.report.charts.panels import PanelLine, line_panel
from vlcpctl.report.charts.scatter import ScatterPoint, scatter_chart
from vlcpctl.report.charts.style import RunStyle
from vlcpctl.report.document import Document
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.scores.runs import Track
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import Table

Styles = Mapping[str, RunStyle]


def training_html(document: Document, styles: Styles) -> Markup:
    """The section about the training; without --checkpoint only the settings that differ."""
    differ = settings_table(document.settings)
    cards = document.cards
    if cards is None or not cards.runs:
        return joined(element("h2", "Settings"), _wrapping(differ)) if differ else Markup("")
    names = differing(document.settings)
    cost, per_task = cost_table(cards), cost_per_task_table(cards)
    return joined(
        element("h2", "Training"),
        html_table(cost) if cost else "",
        _details("Cost per task", html_table(per_task)) if per_task else "",
        _wrapping(differ) if differ else "",
        _losses(cards, styles),
        element("h3", "Settings and provenance of each run"),
        *(_run(cards, run, names, document.settings) for run in cards.runs),
    )


def _losses(cards: Cards, styles: Styles) -> Markup:
    terms, left_out = term_lines(cards)
    if not terms:
        return Markup("")
    by_tasks = has_several_tasks(cards)
    x_title = "task of the run" if by_tasks else "optimizer step"
    xs = np.concatenate([line.x for one in terms for line in one.lines])
    x_range = (math.floor(xs.min()), max(math.ceil(xs.max()), math.floor(xs.min()) + 1))
    drawn = {line.run for one in terms for line in one.lines}
    figures = [_panel(one, styles, x_title, x_range) for one in terms]
    caption = "Each term of the loss as training logged it in metrics.jsonl"
    if by_tasks:
        caption += (
            ": a task spans one unit, from its first optimizer step to its last, and joint "
            "training spans all of its tasks"
        )
    caption += (
        f". At most {cards.most_rows} rows of each log and phase are drawn, evenly spaced, the "
        "first and the last among them; each is one batch, not an average. A line is broken where "
        "a checkpoint, rows or a finite value are missing; a resumed run continues its log "
        "without a gap."
    )
    if any((line.low < line.high).any() for one in terms for line in one.lines):
        caption += " Line: mean over seeds. Band: lowest to highest seed."
    if left_out:
        caption += f" {left_out} more terms are not drawn."
    return joined(
        element("h3", "Loss terms over the steps"),
        element("p", caption, class_="about"),
        legend((name, styles[name], False, "") for name in styles if name in drawn),
        element("div", *figures, class_="panels"),
    )


def _panel(term: TermLines, styles: Styles, x_title: str, x_range: tuple[float, float]) -> Markup:
    lines = [_line(one, styles[one.run]) for one in term.lines]
    chart = line_panel(f"{term.term} over the steps", lines, x_title, x_range)
    return element("figure", element("figcaption", term.term), chart)


def _line(one: RunLine, style: RunStyle) -> PanelLine:
    return PanelLine(one.run, style, one.x, one.mean, one.low, one.high)


def _run(
    cards: Cards, run: RunCard, differ: Sequence[str], settings: Mapping[str, SettingTexts]
) -> Markup:
    made_from, commands, values = run_tables(cards, run, differ, settings.get(run.name, {}))
    facts = element("p", "; ".join(provenance_facts(run)), class_="about")
    typed = element("div", html_table(commands), class_="commands")
    return _details(run.name, joined(facts, html_table(made_from), typed, _wrapping(values)))


def _wrapping(table: Table) -> Markup:
    """A table whose cells have long texts, in several lines."""
    return element("div", html_table(table), class_="wrapping")


def _details(summary: str, content: Markup) -> Markup:
    return element("details", element("summary", summary), content)


def stability_html(track: Track, key: str, styles: Styles) -> Markup:
    """Stability against plasticity of the runs of a track; empty if fewer than two have both."""
    points, missing = stability_points(track, key)
    if len(points) < 2:
        return Markup("")
    titles = (f"plasticity: {key} just after learning", "stability: percentage retained")
    chart, unnamed = scatter_chart(
        f"Stability against plasticity in {key}",
        [
            ScatterPoint(
                one.run.name,
                styles[one.run.name],
                _range(one.plasticity),
                _range(one.stability),
            )
            for one in points
        ],
        titles,
    )
    caption = f"Each point is a run. {_sentence(PLASTICITY)} {_sentence(STABILITY)}"
    caption += " Above 100, later tasks have improved earlier ones."
    if any(len(one.run.seeds) > 1 for one in points):
        caption += " Point: mean over seeds. Lines: lowest to highest seed."
    if missing:
        caption += (
            f" Without a point: {'; '.join(f'{run}, {why}' for run, why in missing.items())}."
        )
    if unnamed:
        caption += f" {len(unnamed)} names had no room; the table has all runs."
    return joined(
        element("h3", "Stability against plasticity"),
        element("figure", chart, element("figcaption", caption)),
        _details("The same numbers as a table", html_table(stability_table(points, key))),
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _range(spread: Spread) -> tuple[float, float, float]:
    return min(spread.values), spread.mean, max(spread.values)
