"""Charts for papers, drawn by matplotlib: one or two columns wide, readable in grey.

The colours are those of Okabe and Ito (2008), which people with the usual colour blindnesses can
tell apart; markers and dashes repeat with another period, so that no two runs depend on colour.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from vlcpctl.core.errors import UsageError
from vlcpctl.report.charts.bars import BarChart
from vlcpctl.report.charts.glyphs import drawable, families
from vlcpctl.report.charts.heat_maps import HeatChart, HeatMap
from vlcpctl.report.charts.histograms import SIDE_DASHES, HistogramChart, HistogramPanel, outline
from vlcpctl.report.charts.lines import LineChart, Series, axes_of
from vlcpctl.report.charts.style import LEVEL_DASH, RunStyle, step_name
from vlcpctl.report.scores.paper_names import with_paper_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Chart = LineChart | BarChart | HeatChart | HistogramChart

ONE_COLUMN, TWO_COLUMNS = 3.25, 6.75  # inches, of the usual conference styles
FORMATS = ("pdf", "svg", "png")

_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#555555"
_MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle-up": "^",
    "diamond": "D",
    "cross": "P",
    "triangle-down": "v",
    "triangle-left": "<",
}
_SETTINGS: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.4,
    "grid.color": "#cccccc",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,  # TrueType, which publishers accept; type 3 they do not
    "svg.fonttype": "path",  # a font that the reader lacks is not missed
    "svg.hashsalt": "vlcpctl",  # ids are random otherwise
    "savefig.dpi": 300,
    "text.parse_math": False,  # a name with two dollars is not a formula
}
_NO_DATES = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
_PER_ROW = 4  # panels
_MOST_PANELS = 24  # in one figure
_LABEL = 22  # characters in a line of a task's name


def require_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--figures needs matplotlib, which is not installed; use pip install matplotlib, or "
            "leave the option out"
        )


def drawings(chart: Chart) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(name, file by format) of each figure of a chart; the same chart gives the same bytes.

    A line chart is drawn in both widths; panels, of which a figure has at most 24, in two columns.
    """
    for name, draw in _figures(chart):
        with _style():
            figure = draw()
            yield name, {form: _saved(figure, form) for form in FORMATS}


def _figures(chart: Chart) -> Iterator[tuple[str, Callable[[], Figure]]]:
    if isinstance(chart, LineChart):
        widths = {"one-column": ONE_COLUMN, "two-columns": TWO_COLUMNS}
        for name, width in widths.items():
            yield f"{chart.name}-{name}", partial(_lines, chart, width)
        return
    count = len(chart.panels)
    for start in range(0, count, _MOST_PANELS):
        shown = chart.panels[start : start + _MOST_PANELS]
        name = chart.name if count <= _MOST_PANELS else f"{chart.name}-{start + 1}"
        yield name, partial(_grid, chart, shown)


def _lines(chart: LineChart, width: float) -> Figure:
    series = chart.drawn
    texts = [drawable(one.name) for one in series]
    columns = max(1, min(len(texts), int(width / (0.45 + 0.062 * max(map(len, texts))))))
    below = 0.13 * math.ceil(len(texts) / columns) + 0.1
    figure = _figure(width, min(width, 4.2) * 0.62 + below)
    axes = figure.add_subplot()
    scale = axes_of(series, 5)
    handles = [_line(axes, one, has_bands=chart.has_bands) for one in series]
    axes.set_xlim(scale.x_domain[0], scale.x_domain[1])
    axes.set_ylim(scale.marks[0], scale.marks[-1])
    steps = [step for step in scale.steps if step >= 0]
    every = max(1, math.ceil(len(steps) / (8 if width < 5 else 16)))
    shown = [*(step for step in scale.steps if step < 0), *steps[::every]]
    axes.set_xticks(shown, [step_name(step) for step in shown])
    axes.set_xlabel("after step")
    axes.set_ylabel("\n".join(textwrap.wrap(_in_papers(chart.scores), 26)))
    if any(one.has_band for one in series) and chart.has_bands:
        axes.set_title("bands: lowest to highest seed", loc="right", fontsize=6, color=_GREY)
    axes.grid(axis="y")
    legend = figure.legend(
        handles,
        texts,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.8,
        columnspacing=1.2,
    )
    legend.set_in_layout(True)
    return figure


def _line(axes: Axes, one: Series, *, has_bands: bool) -> Any:
    colour = _colour(one.style)
    means = np.array([point[:2] for point in one.points], float)
    if one.is_level:
        dash = (0, LEVEL_DASH)
        return axes.axhline(means[-1, 1], color=colour, linestyle=dash, linewidth=0.9)
    if one.has_band and has_bands:
        lows, highs = ([point[place] for point in one.points] for place in (2, 3))
        axes.fill_between(means[:, 0], lows, highs, color=colour, alpha=0.15, linewidth=0)
    every = max(1, math.ceil(len(means) / 10))
    offset = 0 if one.style.place is None else one.style.place % every
    (handle,) = axes.plot(
        means[:, 0],
        means[:, 1],
        color=colour,
        linestyle=(0, one.style.dash) if one.style.dash else "solid",
        marker=_MARKERS.get(one.style.marker or "", "none"),
        markevery=(offset, every),
        linewidth=1.1 if has_bands else 0.7,
        clip_on=False,
    )
    return handle


def _grid(chart: BarChart | HeatChart | HistogramChart, panels: Sequence[Any]) -> Figure:
    across = min(_PER_ROW, len(panels))
    down = math.ceil(len(panels) / across)
    height = 0.25 + min(1.9, 0.85 * TWO_COLUMNS / across)
    if isinstance(chart, BarChart):
        height = 0.35 + 0.13 * len(chart.tasks)
    figure = _figure(TWO_COLUMNS, down * height + 0.35)
    places = figure.subplots(down, across, squeeze=False, sharex=not isinstance(chart, HeatChart))
    for place, axes in enumerate(places.flat):
        if place >= len(panels):
            axes.set_visible(False)
        elif isinstance(chart, BarChart):
            _bar_panel(axes, chart, panels[place], has_names=place % across == 0)
        elif isinstance(chart, HeatChart):
            image = _heat_panel(axes, panels[place], chart.highest)
        else:
            _histogram_panel(axes, chart, panels[place])
    if isinstance(chart, HeatChart):
        label = _in_papers(chart.title)
        figure.colorbar(image, ax=places, shrink=0.8, aspect=30, pad=0.01, label=label)
    else:
        figure.supxlabel(_in_papers(chart.key), fontsize=7)
    return figure


def _bar_panel(axes: Axes, chart: BarChart, panel: Any, *, has_names: bool) -> None:
    rows = np.arange(len(chart.tasks))
    axes.barh(rows, np.nan_to_num(panel.final), 0.62, color=_colour(panel.style), linewidth=0)
    axes.scatter(panel.learned, rows, marker="|", s=28, color="black", linewidths=1, zorder=3)
    names = [textwrap.shorten(drawable(task), 60) for task in chart.tasks]
    wrapped = ["\n".join(textwrap.wrap(name, _LABEL)) for name in names]
    axes.set_yticks(rows, wrapped if has_names else [""] * len(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(chart.marks[0], chart.marks[-1])
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    _title(axes, panel.name)


def _heat_panel(axes: Axes, one: HeatMap, highest: float) -> Any:
    image = axes.imshow(
        one.own, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest"
    )
    for axis, numbers, label in (("x", one.tasks, "task"), ("y", one.steps, "after step")):
        every = max(1, math.ceil(len(numbers) / 10))
        places = range(0, len(numbers), every)
        names = [step_name(numbers[at]) for at in places]
        getattr(axes, f"set_{axis}ticks")(list(places), names)
        getattr(axes, f"set_{axis}label")(label)
    _title(axes, one.run)
    return image


def _histogram_panel(axes: Axes, chart: HistogramChart, panel: HistogramPanel) -> None:
    for number, share in enumerate(panel.shares):
        degrees, percents = zip(*outline(share, chart.scale), strict=True)
        colour = _OKABE_ITO[number]
        dash = (0, SIDE_DASHES[number]) if SIDE_DASHES[number] else "solid"
        axes.fill_between(degrees, percents, step="post", color=colour, alpha=0.18, linewidth=0)
        axes.step(degrees, percents, where="post", color=colour, linestyle=dash, linewidth=0.9)
    axes.set_xlim(0, chart.scale.degrees[-1])
    axes.set_ylim(0, chart.scale.percents[-1])
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(axis="y")
    _title(axes, panel.name)


def _in_papers(text: str) -> str:
    """The text as matplotlib can draw it, with the names of metrics that papers print."""
    return drawable(with_paper_names(text))


def _title(axes: Axes, text: str) -> None:
    axes.set_title("\n".join(textwrap.wrap(drawable(text), 26)), loc="left")


def _colour(style: RunStyle) -> str:
    return _GREY if style.colour_index is None else _OKABE_ITO[style.colour_index]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and opens windows

    return Figure(figsize=(width, height), layout="constrained")


def _saved(figure: Figure, form: str) -> bytes:
    stream = BytesIO()
    figure.savefig(stream, format=form, metadata=_NO_DATES[form])
    return stream.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    # Nothing of the user's own matplotlibrc, so that every machine draws the same.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_SETTINGS, "font.family": list(families())})
        yield
