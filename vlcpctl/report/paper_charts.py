"""The charts of a page for papers, by matplotlib: one or two columns wide, readable in grey.

The colours are those of Okabe and Ito (2008), which people with the usual colour blindnesses can
tell apart; markers and dashes repeat with another period, so that no two runs depend on colour.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable
from vlcpctl.report.charts import (
    LEVEL_DASH,
    SIDE_DASHES,
    BarChart,
    HeatChart,
    HistogramChart,
    LineChart,
    RunStyle,
    Series,
    axes_of,
    outline,
    step_name,
)
from vlcpctl.report.formats import with_paper_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Chart = LineChart | BarChart | HeatChart | HistogramChart

_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#555555"
_MARKERS = dict(zip(("circle", "square", "triangle-up", "diamond"), "os^D", strict=True))
_MARKERS |= dict(zip(("cross", "triangle-down", "triangle-left"), "Pv<", strict=True))
# Used where they are installed, for characters that the first, which comes with matplotlib, lacks.
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC", "Noto Emoji")
_SETTINGS: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7,
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
_WIDTHS = {"one-column": 3.25, "two-columns": 6.75}  # inches, of the usual conference styles
_MOST_PANELS = 24  # in one figure


def require_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError("--figures needs matplotlib: pip install matplotlib, or leave it out")


def drawings(chart: Chart) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(name, file by format) of each figure of a chart; the same chart gives the same bytes.

    A line chart is drawn in both widths; panels, of which a figure has at most 24, in two columns.
    """
    with _style():
        if isinstance(chart, LineChart):
            for name, width in _WIDTHS.items():
                yield f"{chart.name}-{name}", _saved(_lines(chart, width))
            return
        count = len(chart.panels)
        for start in range(0, count, _MOST_PANELS):
            name = chart.name if count <= _MOST_PANELS else f"{chart.name}-{start + 1}"
            yield name, _saved(_grid(chart, chart.panels[start : start + _MOST_PANELS]))


def _lines(chart: LineChart, width: float) -> Figure:
    names = [printable(one.name) for one in chart.drawn]
    columns = max(1, min(len(names), int(width / (0.45 + 0.062 * max(map(len, names))))))
    below = 0.13 * math.ceil(len(names) / columns) + 0.1
    figure = _figure(width, min(width, 4.2) * 0.62 + below)
    axes, scale = figure.add_subplot(), axes_of(chart.drawn, 5)
    handles = [_line(axes, one, has_bands=chart.has_bands) for one in chart.drawn]
    axes.set(xlim=scale.x_domain, ylim=(scale.marks[0], scale.marks[-1]), xlabel="after step")
    every = max(1, math.ceil(len(scale.steps) / (8 if width < 5 else 16)))
    shown = [step for at, step in enumerate(scale.steps) if step < 0 or at % every == 0]
    axes.set_xticks(shown, [step_name(step) for step in shown])
    axes.set_ylabel("\n".join(textwrap.wrap(with_paper_names(printable(chart.scores)), 26)))
    if any(one.has_band for one in chart.drawn) and chart.has_bands:
        axes.set_title("bands: lowest to highest seed", loc="right", fontsize=6, color=_GREY)
    axes.grid(axis="y")
    looks: dict[str, Any] = {"ncols": columns, "handlelength": 2.8, "columnspacing": 1.2}
    figure.legend(handles, names, loc="outside lower center", frameon=False, **looks)
    return figure


def _line(axes: Axes, one: Series, *, has_bands: bool) -> Any:
    colour, (steps, means) = _colour(one.style), np.array(one.means, float).T
    if one.is_level:
        return axes.axhline(means[-1], color=colour, linestyle=(0, LEVEL_DASH), linewidth=0.9)
    if one.has_band and has_bands:
        lows, highs = ([point[place] for point in one.points] for place in (2, 3))
        axes.fill_between(steps, lows, highs, color=colour, alpha=0.15, linewidth=0)
    every = max(1, math.ceil(len(means) / 10))
    looks: dict[str, Any] = {
        "color": colour,
        "linestyle": (0, one.style.dash) if one.style.dash else "solid",
        "marker": _MARKERS.get(one.style.marker or "", "none"),
        "markevery": ((one.style.place or 0) % every, every),
        "clip_on": False,
    }
    return axes.plot(steps, means, linewidth=1.1 if has_bands else 0.7, **looks)[0]


def _grid(chart: BarChart | HeatChart | HistogramChart, panels: Sequence[Any]) -> Figure:
    across = min(4, len(panels))
    down = math.ceil(len(panels) / across)
    height = 0.25 + min(1.9, 0.85 * _WIDTHS["two-columns"] / across)
    if isinstance(chart, BarChart):
        height = 0.35 + 0.13 * len(chart.tasks)
    figure = _figure(_WIDTHS["two-columns"], down * height + 0.35)
    places = figure.subplots(down, across, squeeze=False)
    image = None
    for at, axes in enumerate(places.flat):
        if at >= len(panels):
            axes.set_visible(False)
            continue
        name = panels[at].run if isinstance(chart, HeatChart) else panels[at].name
        axes.set_title("\n".join(textwrap.wrap(printable(name), 26)), loc="left")
        if isinstance(chart, HeatChart):
            image = _heat_map(axes, panels[at], chart.highest)
        elif isinstance(chart, BarChart):
            _bars(axes, chart, panels[at], has_names=at % across == 0)
        else:
            _histogram(axes, chart, panels[at])
    said = with_paper_names(printable(chart.title if isinstance(chart, HeatChart) else chart.key))
    if image is None:
        figure.supxlabel(said, fontsize=7)
    else:
        figure.colorbar(image, ax=places, shrink=0.8, aspect=30, pad=0.01, label=said)
    return figure


def _bars(axes: Axes, chart: BarChart, panel: Any, *, has_names: bool) -> None:
    rows = np.arange(len(chart.tasks))
    axes.barh(rows, np.nan_to_num(panel.final), 0.62, color=_colour(panel.style), linewidth=0)
    axes.scatter(panel.learned, rows, marker="|", s=28, color="black", linewidths=1, zorder=3)
    names = [textwrap.fill(textwrap.shorten(printable(task), 60), 22) for task in chart.tasks]
    axes.set_yticks(rows, names if has_names else [""] * len(rows))
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(chart.marks[0], chart.marks[-1]))
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _heat_map(axes: Axes, one: Any, highest: float) -> Any:
    looks: dict[str, Any] = {"cmap": "Blues", "aspect": "auto", "interpolation": "nearest"}
    for axis, numbers, label in (("x", one.tasks, "task"), ("y", one.steps, "after step")):
        places = range(0, len(numbers), max(1, math.ceil(len(numbers) / 10)))
        getattr(axes, f"set_{axis}ticks")(places, [step_name(numbers[at]) for at in places])
        getattr(axes, f"set_{axis}label")(label)
    return axes.imshow(one.own, vmin=0, vmax=highest, **looks)


def _histogram(axes: Axes, chart: HistogramChart, panel: Any) -> None:
    for side, share in enumerate(panel.shares):
        degrees, percents = zip(*outline(share, chart.scale), strict=True)
        colour, dash = _OKABE_ITO[side], SIDE_DASHES[side]
        axes.fill_between(degrees, percents, step="post", color=colour, alpha=0.18, linewidth=0)
        style = (0, dash) if dash else "solid"
        axes.step(degrees, percents, where="post", color=colour, linestyle=style, linewidth=0.9)
    axes.set(xlim=(0, chart.scale.degrees[-1]), ylim=(0, chart.scale.percents[-1]))
    axes.grid(axis="y")


def _colour(style: RunStyle) -> str:
    return _GREY if style.colour_index is None else _OKABE_ITO[style.colour_index]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and opens windows

    return Figure(figsize=(width, height), layout="constrained")


def _saved(figure: Figure) -> dict[str, bytes]:
    found = {}
    for form, metadata in _NO_DATES.items():
        stream = BytesIO()
        figure.savefig(stream, format=form, metadata=metadata)
        found[form] = stream.getvalue()
    return found


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    # Nothing of the user's own matplotlibrc, so that every machine draws the same.
    with mpl.rc_context():
        mpl.rcdefaults()
        fonts = [name for name in _FONTS if name in installed]
        mpl.rcParams.update({**_SETTINGS, "font.family": fonts})
        yield
