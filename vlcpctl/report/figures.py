"""The charts of a page for papers, by matplotlib: one or two columns wide, readable in grey."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable
from vlcpctl.report.charts import LEVEL_DASH, MARKERS, GridChart, LineChart, RunGrid

# Okabe and Ito (2008): they can be told apart with the usual colour blindnesses.
_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_COLOURS: dict[int | None, str] = {None: "#555555", **dict(enumerate(_OKABE_ITO))}
_MARKERS = dict(zip(MARKERS, "os^DPv<", strict=True))
_SETTINGS: dict[Any, Any] = {
    "font.size": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,  # TrueType, which publishers accept; type 3 they do not
    "svg.hashsalt": "vlcpctl",  # ids are random otherwise
    "savefig.dpi": 300,
    "text.parse_math": False,  # a name with two dollars is not a formula
}
_NO_DATES = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
_WIDTHS = {"one-column": 3.25, "two-columns": 6.75}  # inches, of the usual conference styles

Chart = LineChart | GridChart | Sequence[LineChart]  # several: the panels of one figure


def require_matplotlib() -> None:
    """Raise UsageError if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError("--figures needs matplotlib: pip install matplotlib, or leave it out")


def drawings(chart: Chart) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(name, file by format) of each figure of a chart; the same chart gives the same bytes.

    A line chart is drawn in both widths, panels in two columns.
    """
    import matplotlib as mpl

    # Nothing of the user's own matplotlibrc, so that every machine draws the same.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        if isinstance(chart, LineChart):
            found = [(f"{chart.name}-{name}", _wide(chart, of)) for name, of in _WIDTHS.items()]
        else:
            found = [(chart.name if isinstance(chart, GridChart) else chart[0].name, _grid(chart))]
        for name, figure in found:
            files = {form: BytesIO() for form in _NO_DATES}
            for form, stream in files.items():
                figure.savefig(stream, format=form, metadata=_NO_DATES[form])
            yield name, {form: stream.getvalue() for form, stream in files.items()}


def _wide(chart: LineChart, width: float) -> Any:
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and opens windows

    names = [printable(one.name) for one in chart.lines]
    columns = max(1, min(len(names), int(width / (0.45 + 0.062 * max(map(len, names))))))
    below = 0.13 * math.ceil(len(names) / columns) + 0.1
    figure = Figure(layout="constrained", figsize=(width, min(width, 4.2) * 0.62 + below))
    axes = figure.add_subplot()
    handles = _lines(axes, chart, len(chart.x_marks) // (8 if width < 5 else 16) + 1)
    axes.set_ylabel("\n".join(textwrap.wrap(printable(chart.titles[1]), 26)))
    figure.legend(handles, names, loc="outside lower center", frameon=False, ncols=columns)
    return figure


def _lines(axes: Any, chart: LineChart, every: int) -> list[Any]:
    """The handles of the lines, for a legend; of the marks of x, every so many has a label."""
    handles = []
    for one in chart.lines:
        colour, (x, y) = _COLOURS[one.style.colour_index], one.means
        if one.is_level:
            handles.append(axes.axhline(one.last, color=colour, ls=(0, LEVEL_DASH), lw=0.9))
            continue
        if one.has_band and chart.has_bands:
            ends = one.points[0], one.points[2], one.points[3]
            axes.fill_between(*ends, color=colour, alpha=0.15, linewidth=0)
        apart = max(1, math.ceil(len(x) / 10))
        marker = _MARKERS.get(one.style.marker or "") if chart.markers else None
        looks = {"color": colour, "ls": (0, one.style.dash or ()), "clip_on": False}
        looks |= {"marker": marker, "markevery": ((one.style.place or 0) % apart, apart)}
        handles += axes.plot(x, y, linewidth=1.1 if chart.has_bands else 0.7, **looks)
    axes.set(xlim=chart.x_ends, ylim=(chart.y_marks[0], chart.y_marks[-1]), xlabel=chart.titles[0])
    shown = [one for at, one in enumerate(chart.x_marks) if one < 0 or at % every == 0]
    axes.set_xticks(shown, [chart.x_text(one) for one in shown])
    axes.grid(axis="y", color="#cccccc")
    return handles


def _grid(chart: GridChart | Sequence[LineChart]) -> Any:
    from matplotlib.figure import Figure

    panels: Sequence[Any] = chart.grids if isinstance(chart, GridChart) else chart
    across, width = min(4, len(panels)), _WIDTHS["two-columns"]
    down = math.ceil(len(panels) / across)
    is_bars = isinstance(chart, GridChart) and chart.is_bars
    height = 0.1 + 0.13 * len(panels[0].columns) if is_bars else min(1.9, 0.85 * width / across)
    figure = Figure(layout="constrained", figsize=(width, down * (height + 0.25) + 0.35))
    places = figure.subplots(down, across, squeeze=False)
    for axes in places.flat[len(panels) :]:
        axes.set_visible(False)
    images = []
    for at, (axes, panel) in enumerate(zip(places.flat, panels, strict=False)):
        name = panel.name if isinstance(panel, RunGrid) else panel.title
        axes.set_title("\n".join(textwrap.wrap(printable(name), 26)))
        if not isinstance(chart, GridChart):
            _lines(axes, panel, 1)
        elif is_bars:
            _bars(axes, panel, chart.marks, has_names=at % across == 0)
        else:
            images.append(_heat_map(axes, panel, chart.highest))
    caption = chart.title if isinstance(chart, GridChart) else chart[0].caption
    said = "\n".join(textwrap.wrap(printable(caption), 110))
    if images:
        figure.colorbar(images[0], ax=places, shrink=0.8, aspect=30, pad=0.01, label=said)
    else:
        figure.supxlabel(said, fontsize=7)
    return figure


def _bars(axes: Any, panel: RunGrid, marks: Sequence[float], *, has_names: bool) -> None:
    rows, (final, learned) = np.arange(len(panel.columns)), panel.values
    axes.barh(rows, np.nan_to_num(final), 0.62, color=_COLOURS[panel.style.colour_index])
    axes.scatter(learned, rows, marker="|", s=28, color="black", linewidths=1, zorder=3)
    names = [textwrap.fill(textwrap.shorten(printable(one), 60), 22) for one in panel.columns]
    axes.set_yticks(rows, names if has_names else [""] * len(rows))
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlim=(marks[0], marks[-1]))
    axes.grid(axis="x", color="#cccccc")


def _heat_map(axes: Any, one: RunGrid, highest: float) -> Any:
    for axis, labels, title in (("x", one.columns, "task"), ("y", one.rows, "after step")):
        places = range(0, len(labels), max(1, math.ceil(len(labels) / 10)))
        getattr(axes, f"set_{axis}ticks")(places, [labels[at] for at in places])
        getattr(axes, f"set_{axis}label")(title)
    return axes.imshow(one.values, cmap="Blues", aspect="auto", vmin=0, vmax=highest)
