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
from vlcpctl.report.charts import LEVEL_DASH, GridChart, LineChart, RunGrid, RunStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

Chart = LineChart | GridChart | Sequence[LineChart]  # several: the panels of one figure


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
                yield f"{chart.name}-{name}", _saved(_wide(chart, width))
            return
        panels: Sequence[Any] = chart.grids if isinstance(chart, GridChart) else chart
        stem = chart.name if isinstance(chart, GridChart) else chart[0].name
        for start in range(0, len(panels), _MOST_PANELS):
            name = stem if len(panels) <= _MOST_PANELS else f"{stem}-{start + 1}"
            yield name, _saved(_grid(chart, panels[start : start + _MOST_PANELS]))


def _wide(chart: LineChart, width: float) -> Figure:
    names = [printable(one.name) for one in chart.lines]
    columns = max(1, min(len(names), int(width / (0.45 + 0.062 * max(map(len, names))))))
    below = 0.13 * math.ceil(len(names) / columns) + 0.1
    figure = _figure(width, min(width, 4.2) * 0.62 + below)
    axes = figure.add_subplot()
    handles = _lines(axes, chart, len(chart.x_marks) // (8 if width < 5 else 16) + 1)
    axes.set_ylabel("\n".join(textwrap.wrap(printable(chart.titles[1]), 26)))
    if chart.has_bands and any(one.has_band for one in chart.lines):
        axes.set_title("bands: lowest to highest seed", loc="right", fontsize=6, color=_GREY)
    looks: dict[str, Any] = {"ncols": columns, "handlelength": 2.8, "columnspacing": 1.2}
    figure.legend(handles, names, loc="outside lower center", frameon=False, **looks)
    return figure


def _lines(axes: Axes, chart: LineChart, every: int) -> list[Any]:
    """The handles of the lines, for a legend; of the marks of x, every so many has a label."""
    handles = []
    for one in chart.lines:
        colour, (x, y), width = _colour(one.style), one.means, 1.1 if chart.has_bands else 0.7
        if one.is_level:
            handles.append(axes.axhline(one.last, color=colour, ls=(0, LEVEL_DASH), lw=0.9))
            continue
        if one.has_band and chart.has_bands:
            ends = one.points[0], one.points[2], one.points[3]
            axes.fill_between(*ends, color=colour, alpha=0.15, linewidth=0)
        apart = max(1, math.ceil(len(x) / 10))
        looks: dict[str, Any] = {
            "color": colour,
            "linestyle": (0, one.style.dash) if one.style.dash else "solid",
            "marker": _MARKERS.get(one.style.marker or "") if chart.markers else None,
            "markevery": ((one.style.place or 0) % apart, apart),
            "clip_on": False,
        }
        handles += axes.plot(x, y, linewidth=width, **looks)
    axes.set(xlim=chart.x_ends, ylim=(chart.y_marks[0], chart.y_marks[-1]), xlabel=chart.titles[0])
    shown = [one for at, one in enumerate(chart.x_marks) if one < 0 or at % every == 0]
    axes.set_xticks(shown, [chart.x_text(one) for one in shown])
    axes.grid(axis="y")
    return handles


def _grid(chart: GridChart | Sequence[LineChart], panels: Sequence[Any]) -> Figure:
    across, is_grid = min(4, len(panels)), isinstance(chart, GridChart)
    is_bars = isinstance(chart, GridChart) and chart.is_bars
    down = math.ceil(len(panels) / across)
    height = 0.25 + min(1.9, 0.85 * _WIDTHS["two-columns"] / across)
    height = 0.35 + 0.13 * len(panels[0].columns) if is_bars else height
    figure = _figure(_WIDTHS["two-columns"], down * height + 0.35)
    places = figure.subplots(down, across, squeeze=False)
    image = None
    for at, axes in enumerate(places.flat):
        axes.set_visible(at < len(panels))
        if at >= len(panels):
            continue
        panel = panels[at]
        name = panel.name if is_grid else panel.title
        axes.set_title("\n".join(textwrap.wrap(printable(name), 26)), loc="left")
        if not isinstance(chart, GridChart):
            _lines(axes, panel, 1)
        elif is_bars:
            _bars(axes, panel, chart.marks, has_names=at % across == 0)
        else:
            image = _heat_map(axes, panel, chart.highest)
    caption = chart.title if isinstance(chart, GridChart) else chart[0].caption
    said = "\n".join(textwrap.wrap(printable(caption), 110))
    if image is None:
        figure.supxlabel(said, fontsize=7)
    else:
        figure.colorbar(image, ax=places, shrink=0.8, aspect=30, pad=0.01, label=said)
    return figure


def _bars(axes: Axes, panel: RunGrid, marks: Sequence[float], *, has_names: bool) -> None:
    rows, (final, learned) = np.arange(len(panel.columns)), panel.values
    axes.barh(rows, np.nan_to_num(final), 0.62, color=_colour(panel.style), linewidth=0)
    axes.scatter(learned, rows, marker="|", s=28, color="black", linewidths=1, zorder=3)
    names = [textwrap.fill(textwrap.shorten(printable(one), 60), 22) for one in panel.columns]
    axes.set_yticks(rows, names if has_names else [""] * len(rows))
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(marks[0], marks[-1]))
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def _heat_map(axes: Axes, one: RunGrid, highest: float) -> Any:
    for axis, labels, title in (("x", one.columns, "task"), ("y", one.rows, "after step")):
        places = range(0, len(labels), max(1, math.ceil(len(labels) / 10)))
        getattr(axes, f"set_{axis}ticks")(places, [labels[at] for at in places])
        getattr(axes, f"set_{axis}label")(title)
    looks: dict[str, Any] = {"cmap": "Blues", "aspect": "auto", "interpolation": "nearest"}
    return axes.imshow(one.values, vmin=0, vmax=highest, **looks)


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
