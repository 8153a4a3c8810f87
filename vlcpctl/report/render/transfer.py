"""The long parts of a track's section, folded: transfer in every metric, losses by task."""

from __future__ import annotations

from collections.abc import Sequence

from vlcpctl.report.document import Document
from vlcpctl.report.markup import Markup, element
from vlcpctl.report.render import chart_blocks, figures
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.scores.drops import Curve
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.tables.per_task import per_task_tables
from vlcpctl.report.tables.table import Table
from vlcpctl.report.tables.transfer import every_step_tables

# Of the charts in other metrics than the report's own; the tables beside them have all numbers.
_MOST_CHARTS, _MOST_POINTS = 24, 3000


def by_task(track: Track, key: str, runs: Sequence[RunScores]) -> Markup:
    """The tables of what each task lost, folded; empty without any."""
    return _folded("Forgetting by task and direction, as tables", per_task_tables(track, key, runs))


def transfer(document: Document, track: Track, styles: figures.Styles) -> list[Markup]:
    """Charts and tables of data outside the stream in every metric; empty without such data.

    Guards have charts in the main metric elsewhere: here are those of other data.
    """
    tables = every_step_tables(track)
    if not tables:
        return []
    key = document.key(track)
    curves = [one for one in document.curves if one.track is track and not one.is_task]
    shown = {id(one) for one in document.guards(track)}
    others = _with_steps([one for one in curves if id(one) not in shown])
    keys = [one for one in track.keys if one != key]
    more = _other_metrics(_with_steps(curves), keys, styles)
    return [
        element("h3", "Transfer to data outside the stream"),
        *_charts(others, key, styles),
        *more,
        _folded("Every metric after every step, as tables", tables),
    ]


def _with_steps(curves: Sequence[Curve]) -> list[Curve]:
    """The curves of data on which any model was evaluated after several steps."""
    data = {one.data for one in curves if len(one.steps) > 1}
    return [one for one in curves if one.data in data]


def _charts(curves: Sequence[Curve], key: str, styles: figures.Styles) -> list[Markup]:
    """A chart of one metric for each data set, and how many are not drawn."""
    charts, note = figures.guards(curves, key, styles)
    drawn = [chart_blocks.lines_block(one, key, has_panels=False) for one in charts]
    return [*drawn, element("p", note)] if note else drawn


def _other_metrics(
    curves: Sequence[Curve], keys: Sequence[str], styles: figures.Styles
) -> list[Markup]:
    """Folded charts in each metric, a data set each, as many as a page can hold."""
    points = sum(len(one.steps) for one in curves)
    charts_each = len({one.data for one in curves})
    room = min(_MOST_CHARTS // max(charts_each, 1), _MOST_POINTS // max(points, 1))
    charts = [chart for key in keys[:room] for chart in _charts(curves, key, styles)]
    if not charts:
        return []
    if room < len(keys):
        charts.append(element("p", f"Drawn: {room} of {len(keys)} other metrics."))
    return [element("details", element("summary", "Other metrics over the steps"), *charts)]


def _folded(title: str, tables: Sequence[Table]) -> Markup:
    if not tables:
        return Markup("")
    return element("details", element("summary", title), *map(html_table, tables))
