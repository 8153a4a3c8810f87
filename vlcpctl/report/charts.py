"""Charts as inline SVG: lines with bands, bars and points.

Colours are variables of the page's style sheet, so that one chart serves the light and the dark
scheme and print. A mark of a run has data-run, by which page.js hides and highlights it. What is
drawn is apart from how: `figures` draws the same charts by matplotlib.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.words import printable
from vlcpctl.report.markup import Markup, attributes, escaped

Floats = NDArray[np.float64]
_Place = tuple[float, float]

MANY_RUNS = 12  # more are drawn with thinner lines and without bands
SHADES = 10  # of the heat tables: .h0 to .h10 in style.css
LEVEL_DASH = (6, 5)
# Of a cycle of 6 colours, 7 markers and 5 dashes, the first 35 runs differ in marker or dash, so
# that they can be told apart in grey; 6 is coprime to 35, so that the first 210 runs all differ.
COLOURS = 6  # --run-1 to --run-6 in style.css
MARKERS = {  # as paths around (0, 0)
    "circle": "M4 0a4 4 0 1 0-8 0a4 4 0 1 0 8 0z",
    "square": "M-3.5-3.5h7v7h-7z",
    "triangle-up": "M0-4.5l4.5 8h-9z",
    "diamond": "M0-5l4 5l-4 5l-4-5z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "triangle-down": "M0 4.5l4.5-8h-9z",
    "triangle-left": "M-4.5 0l8-4.5v9z",
}
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3), (14, 4))

_CHARACTER = 0.62 * 11  # px: wider than most fonts at the size of labels, so that none is cut
_MOST_X_LABELS = 20
_LEAST_HEIGHT = 5.0  # points of score


@dataclass(frozen=True)
class RunStyle:
    """The number of a run on the page, which charts, tables and page.js share, and its looks.

    A number of None is no run: it cannot be hidden. `place` is the run's place in the cycle of
    styles; None is an upper bound or a baseline, which is grey and has no marker.
    """

    number: int | None
    place: int | None

    @property
    def colour_index(self) -> int | None:
        """From 0 to COLOURS - 1; None for grey."""
        return None if self.place is None else self.place % COLOURS

    @property
    def colour(self) -> str:
        """The colour as CSS, which follows the page's light or dark scheme."""
        index = self.colour_index
        return "var(--muted)" if index is None else f"var(--run-{index + 1})"

    @property
    def marker(self) -> str | None:
        """The name of the marker's shape; None: no marker."""
        return None if self.place is None else [*MARKERS][self.place % len(MARKERS)]

    @property
    def dash(self) -> tuple[int, ...]:
        """The lengths of strokes and gaps in pixels; empty for a solid line."""
        return () if self.place is None else DASHES[self.place // len(MARKERS) % len(DASHES)]


SIDES = RunStyle(None, 0), RunStyle(None, len(MARKERS))  # solid and dashed, in two colours


def styles(names: Iterable[str], bounds: Iterable[str] = ()) -> dict[str, RunStyle]:
    """A style for each run, in this order; runs in `bounds` are grey.

    >>> [one.place for one in styles(["joint", "a", "b"], bounds=["joint"]).values()]
    [None, 0, 1]
    """
    grey = set(bounds)
    found: dict[str, RunStyle] = {}
    for name in dict.fromkeys(names):
        place = None if name in grey else sum(one.place is not None for one in found.values())
        found[name] = RunStyle(len(found), place)
    return found


def step_name(step: float) -> str:
    """The step as a label; -1 is the model before the first one.

    >>> step_name(-1), step_name(3)
    ('start', '3')
    """
    return "start" if step < 0 else f"{step:g}"


def ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Round numbers from just below `low` to just above `high`.

    >>> ticks(3, 47)
    (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    """
    # Not below what a float of this size can distinguish.
    rough = max(high - low, 1e-9, 1e-9 * abs(low), 1e-9 * abs(high)) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return tuple(round(index * step, 10) for index in range(first, max(last, first + 1) + 1))


@dataclass(frozen=True, eq=False)
class Line:
    """One run: `points` are (4, N), x ascending, the mean, lowest and highest seed; NaN is a gap.

    A level is a score that was measured once: a flat line. Without a finite mean, only the band
    between the lowest and the highest is drawn.
    """

    name: str
    style: RunStyle
    points: Floats
    is_level: bool = False

    @property
    def means(self) -> Floats:
        """(2, K) x and mean where the mean is finite."""
        known: Floats = self.points[:2, np.isfinite(self.points[1])]
        return known

    @property
    def last(self) -> float:
        """The last mean; -inf without any."""
        return float(self.means[1, -1]) if self.means.size else -math.inf

    @property
    def has_band(self) -> bool:
        """Whether its seeds differ."""
        return not self.is_level and bool((self.points[2] < self.points[3]).any())


@dataclass(frozen=True, eq=False)
class LineChart:
    """Lines on common axes: its name in file names, title, caption and what its axes are.

    `x_marks` and `y_marks` have labels; the y axis reaches from its first to its last one. A line
    has at most `markers` markers, a single one at its end.
    """

    name: str
    title: str
    caption: str
    titles: tuple[str, str]
    lines: tuple[Line, ...]
    x_ends: tuple[float, float]
    x_marks: Sequence[float]
    y_marks: Sequence[float]
    x_text: Callable[[float], str] = step_name
    size: tuple[float, float] = (800, 300)
    markers: int = 12

    @property
    def ranked(self) -> list[Line]:
        """The lines of runs and levels, the best at the end first."""
        found = (one for one in self.lines if one.means.size)
        return sorted(found, key=lambda one: -one.last)

    @property
    def has_bands(self) -> bool:
        """Whether the lines are few enough for bands over their seeds."""
        return len(self.lines) <= MANY_RUNS

    def svg(self) -> Markup:
        """The chart; empty without lines."""
        if not self.lines:
            return Markup("")
        plot = _Plot(self.x_ends, self.y_marks, self.size)
        parts: list[str] = []
        for one in self.lines if self.has_bands else ():
            parts += _bands(plot, one) if one.has_band else []
        levels = [one for one in self.lines if one.is_level and one.means.size]
        for one in levels:
            flat = plot.path([(end, one.last) for end in self.x_ends])
            parts.append(_line(flat, one.style, 1.5, one.name, LEVEL_DASH))
        curves = [one for one in self.lines if not one.is_level and one.means.size]
        width = 1.9 if self.has_bands else 1.2
        for one in curves:
            points = zip(*one.points[:2].tolist(), strict=True)
            parts.append(_line(plot.path(points), one.style, width, one.name, one.style.dash))
        for number, one in enumerate(curves if self.markers else ()):
            x, y = one.means
            # At every step, or at some of many: at other steps for each run.
            every = math.ceil(len(x) / self.markers)
            shown = slice(number % every, None, every) if self.markers > 1 else slice(-1, None)
            places = zip(x[shown].tolist(), y[shown].tolist(), strict=True)
            name = one.name if len(x) == 1 else ""  # its line has no length to point at
            parts += [_marker(one.style, plot.x(at), plot.y(value), name) for at, value in places]
        last = ((one, self.x_text(float(one.means[0, -1]))) for one in (*levels, *curves))
        ends = "; ".join(f"{one.name}: {one.last:.4g} at {x}" for one, x in last)
        axes = _axes(plot, self.x_marks, self.y_marks, self.x_text, self.titles)
        return _svg(plot, self.y_marks, self.titles, (self.title, ends), (*axes, *parts))

    def panels(self) -> list[LineChart]:
        """A small chart of each run with a curve, on shared axes; a grey band is all together."""
        curves = [one for one in self.lines if not one.is_level]
        if not curves:
            return []
        axes = score_axes(curves, 4)
        axes |= {"x_marks": axes["x_ends"], "y_marks": (axes["y_marks"][0], axes["y_marks"][-1])}
        steps = sorted({x for one in curves for x in one.means[0].tolist()})
        at = [[one.means[1][one.means[0] == x] for one in curves] for x in steps]
        ends = [(min(all_), max(all_)) for all_ in (np.concatenate(found).tolist() for found in at)]
        band = np.array([(x, math.nan, *end) for x, end in zip(steps, ends, strict=True)]).T
        everyone = Line("all runs", RunStyle(None, None), band)
        narrow = [replace(one, points=one.points[[0, 1, 1, 1]]) for one in curves]  # no band
        small = replace(self, titles=("", ""), size=(150, 76), **axes)
        of = ((one, f"{one.name}: {self.title}", one.means.shape[1] == 1) for one in narrow)
        return [
            replace(small, title=title, lines=(everyone, one), markers=int(is_alone))
            for one, title, is_alone in of
        ]


def score_axes(lines: Iterable[Line], count: int = 7) -> dict[str, Any]:
    """The axes of a LineChart of scores over steps that hold every point of these lines.

    They are at least five points of score high, so that noise does not look like a trend.
    """
    points = np.concatenate([one.points for one in lines], axis=1)
    lowest, highest = float(np.nanmin(points[1:])), float(np.nanmax(points[1:]))
    low = lowest - max(0.0, _LEAST_HEIGHT - (highest - lowest)) / 2
    low = max(low, 0.0) if lowest >= 0 else low
    high = max(highest, low + _LEAST_HEIGHT)
    first, last = min(0, int(points[0].min())), int(points[0].max())
    every = max(1, math.ceil((last + 1) / _MOST_X_LABELS))
    room = 0.5 if first == last else 0.0  # the axis has a length even if there is one step
    return {
        "x_ends": (first - room, last + room),
        "x_marks": [*range(first, 0), *range(0, last + 1, every)],
        "y_marks": ticks(0 if 0 <= low < high / 2 else low, high, count),
    }


@dataclass(frozen=True, eq=False)
class RunGrid:
    """The numbers of one run: `values` (rows, columns), NaN where there is none, with labels."""

    name: str
    style: RunStyle
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats


@dataclass(frozen=True, eq=False)
class GridChart:
    """The grids of all runs on one scale, which ends at `highest`, as heat maps or as bars.

    Bars have a column for each task and two rows: the last model, drawn as a bar, and the score
    just after learning, drawn as a tick.
    """

    name: str
    title: str
    caption: str
    grids: tuple[RunGrid, ...]
    is_bars: bool = False

    @property
    def highest(self) -> float:
        """The largest value, or 1 if none is above 0."""
        return float(max(np.nanmax(one.values, initial=0.0) for one in self.grids)) or 1.0

    @property
    def marks(self) -> tuple[float, ...]:
        """The tick marks of the scores, for bars."""
        low = min(np.nanmin(one.values, initial=0.0) for one in self.grids)
        return ticks(float(low), self.highest, 4)

    def bars(self) -> list[tuple[RunGrid, Markup]]:
        """Each run with its bars, in order."""
        labels = [textwrap.wrap(printable(one), 24) or [""] for one in self.grids[0].columns]
        row = 13 * max(map(len, labels)) + 6
        plot = _Plot(self.marks, (1.0, 0.0), (190, row * len(labels)))
        frame = []
        for mark in self.marks:
            d = f"M{_px(plot.x(mark))} 0V{_px(plot.height)}"
            frame.append(f'<path d="{d}" stroke="var(--rule)"/>')
            frame.append(_text(f"{mark:,.4g}", plot.x(mark), plot.height + 16, "middle"))
        for number, lines in enumerate(labels):
            top = row * (number + 0.5) + 4 - 13 * (len(lines) - 1) / 2
            frame += [_text(one, -6, top + 13 * at, "end") for at, one in enumerate(lines)]
        about = f"{len(labels)} tasks; bar: last model, tick: just after learning"
        found = []
        for grid in self.grids:
            parts = list(frame)
            for number, (final, learned) in enumerate(grid.values.T.tolist()):
                middle = row * (number + 0.5)
                if not math.isnan(final):
                    ends = sorted((plot.x(0), plot.x(final)))
                    d = f"M{_px(ends[0])} {_px(middle - 5)}H{_px(ends[1])}v10H{_px(ends[0])}z"
                    looks = {"fill": grid.style.colour, "opacity": 0.85}
                    parts.append(f"<path{attributes(d=d, data_run=grid.style.number, **looks)}/>")
                if not math.isnan(learned):
                    d = f"M{_px(plot.x(learned))} {_px(middle - 7.5)}v15"
                    parts.append(f'<path d="{d}" stroke="var(--ink)" stroke-width="2"/>')
            said = (f"{grid.name}: {self.title}", about)
            left = max(_width(one) for lines in labels for one in lines) + 8
            found.append((grid, _svg(plot, left, ("", ""), said, parts, right=24)))
        return found


def shade(value: float, highest: float) -> int:
    """The shade of a score, from 0 to SHADES.

    >>> shade(25, 50), shade(-1, 50), shade(50, 50)
    (5, 0, 10)
    """
    return round(SHADES * min(max(value / highest, 0.0), 1.0))


class _Plot:
    """A rectangle in pixels in which data is placed, between the ends of `xs` and of `ys`."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], size: tuple[float, float]):
        self.xs, self.ys, (self.width, self.height) = xs, ys, size

    def x(self, value: float) -> float:
        """The pixel of a value, from the left."""
        return self.width * (value - self.xs[0]) / (self.xs[-1] - self.xs[0])

    def y(self, value: float) -> float:
        """The pixel of a value, from the top."""
        return self.height * (1 - (value - self.ys[0]) / (self.ys[-1] - self.ys[0]))

    def path(self, points: Iterable[_Place]) -> str:
        """A line through the points, broken where one is not finite."""
        found, pen = [], "M"
        for x, y in points:
            if math.isfinite(y):
                found.append(f"{pen}{_px(self.x(x))} {_px(self.y(y))}")
            pen = "L" if math.isfinite(y) else "M"
        return "".join(found)


def _axes(
    plot: _Plot,
    x_marks: Iterable[float],
    y_marks: Iterable[float],
    x_text: Callable[[float], str],
    titles: tuple[str, str],
) -> Iterator[str]:
    """A rule at each mark of y, and the labels of both axes, which do not overlap."""
    for mark in y_marks:
        at = _px(plot.y(mark))
        yield f'<path d="M0 {at}H{_px(plot.width)}" stroke="var(--rule)"/>'
        yield _text(f"{mark:,.4g}", -6, plot.y(mark) + 4, "end")
    free = -math.inf
    for mark in x_marks:
        half = _width(x_text(mark)) / 2
        if plot.x(mark) - half >= free:
            free = plot.x(mark) + half + 6
            yield _text(x_text(mark), plot.x(mark), plot.height + 16, "middle")
    if titles[0]:
        yield _text(titles[0], plot.width / 2, plot.height + 34, "middle")
    if titles[1]:
        at = f"rotate(-90)translate({_px(-plot.height / 2)} {_px(-_left(y_marks) - 4)})"
        yield f"<g{attributes(transform=at)}>{_text(titles[1], 0, 0, 'middle')}</g>"


def _left(y_marks: Iterable[float]) -> float:
    """The width of the labels of y."""
    return max(_width(f"{mark:,.4g}") for mark in y_marks) + 8


def _px(value: float) -> str:
    """At one decimal: a tenth of a pixel is not visible."""
    return f"{round(value, 1) + 0.0:g}"


def _width(text: str) -> float:
    """The width of a label in pixels, rather too large than too small."""
    return len(text) * _CHARACTER


def _text(text: str, x: float, y: float, anchor: str) -> str:
    named = attributes(x=_px(x), y=_px(y), text_anchor=anchor, fill="var(--muted)")
    return f"<text{named}>{escaped(text)}</text>"


def _line(
    d: str, style: RunStyle, width: float, title: str = "", dash: tuple[int, ...] = ()
) -> str:
    looks = {"stroke_width": width, "stroke_dasharray": " ".join(map(str, dash)) or None}
    named = attributes(d=d, stroke=style.colour, data_run=style.number, **looks)
    return f"<path{named}>{f'<title>{escaped(title)}</title>' if title else ''}</path>"


def _bands(plot: _Plot, one: Line) -> Iterator[str]:
    """The band of a line, in a piece between each two gaps."""
    x, _, low, high = one.points
    known = np.isfinite(low)
    for rows in np.split(np.arange(len(x)), np.flatnonzero(np.diff(known.astype(int))) + 1):
        if known[rows[0]]:
            ends = [*zip(x[rows].tolist(), high[rows].tolist(), strict=True)]
            ends += zip(x[rows][::-1].tolist(), low[rows][::-1].tolist(), strict=True)
            looks = {"fill": one.style.colour, "opacity": 0.14}
            d = f"{plot.path(ends)}Z"
            yield f"<path{attributes(d=d, data_run=one.style.number, **looks)}/>"


def _marker(style: RunStyle, x: float, y: float, title: str) -> str:
    if style.marker is None:
        return ""
    at, d = f"translate({_px(x)} {_px(y)})scale(0.8)", MARKERS[style.marker]
    named = attributes(d=d, fill=style.colour, transform=at, data_run=style.number)
    return f"<path{named}>{f'<title>{escaped(title)}</title>' if title else ''}</path>"


def _svg(
    plot: _Plot,
    labels: Sequence[float] | float,
    titles: tuple[str, str],
    about: tuple[str, str],
    parts: Iterable[str],
    right: float = 16,
) -> Markup:
    """The element, with a title and a description for screen readers.

    `labels` are the marks of y, or the width of other labels at the left.
    """
    left = labels if isinstance(labels, float) else _left(labels)
    left += 16 if titles[1] else 0
    below = 40 if titles[0] else 22
    box = (-left, -10, left + plot.width + right, plot.height + 10 + below)
    named = attributes(
        viewBox=" ".join(map(_px, box)), style=f"max-width:{box[2]:g}px", fill="none", role="img"
    )
    said = f"<title>{escaped(about[0])}</title><desc>{escaped(about[1])}</desc>"
    return Markup(f"<svg{named}>{said}{''.join(parts)}</svg>")
