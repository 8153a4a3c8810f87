"""Charts as inline SVG: scores over steps, bars per task, loss terms, histograms, a scatter.

Colours are variables of the page's style sheet, so that one chart serves the light and the dark
scheme and print. A mark of a run has data-run, by which page.js hides and highlights it. What is
drawn is apart from how: `paper_charts` draws the same charts by matplotlib.
"""

from __future__ import annotations

import base64
import math
import struct
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.words import printable
from vlcpctl.report.markup import Markup, attributes, escaped

Floats = NDArray[np.float64]
Point = tuple[
    int, float, float, float
]  # step (-1: before the first one), mean, lowest, highest seed
Range = tuple[float, float, float]  # lowest seed, mean, highest seed
_Place = tuple[float, float]

MANY_RUNS = 12  # more are drawn with thinner lines and without bands
SHADES = 10  # of the heat tables: .h0 to .h10 in style.css
LEVEL_DASH = (6, 5)  # a level line: a score that was not measured at every step
SIDE_DASHES: tuple[tuple[int, ...], ...] = ((), (4, 2))  # of the two sides of a histogram
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

_FONT = 11  # px of a label
_CHARACTER = 0.62 * _FONT  # wider than most fonts, so that no label is cut
_LINE = 13  # px, of a label with several lines
_MOST_MARKERS, _MOST_X_LABELS = 12, 20
_LEAST_HEIGHT, _MOST_SCORE = 5.0, 100.0  # points of score
_KEEP = 0.999  # share of the angles that a histogram shows; the tables have the rest
_INK = (11, 92, 171)  # --heat of the light scheme; style.css brightens pictures in the dark one


@dataclass(frozen=True)
class RunStyle:
    """The number of a run on the page, which charts, tables and page.js share, and its looks.

    `place` is the run's place in the cycle of styles; None is an upper bound or a baseline, which
    is grey and has no marker.
    """

    number: int
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


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from just below `low` to just above `high`.

    >>> ticks(3, 47)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    # Not below what a float of this size can distinguish.
    rough = max(high - low, 1e-9, 1e-9 * abs(low), 1e-9 * abs(high)) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


class _Plot:
    """A rectangle of `width` x `height` pixels in which data is placed, with labelled axes."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], width: float, height: float):
        self.xs, self.ys, self.width, self.height = xs, ys, width, height

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

    def axes(
        self,
        x_marks: Iterable[float],
        y_marks: Iterable[float],
        x_text: Callable[[float], str],
        titles: _Titles = ("", ""),
    ) -> Iterator[str]:
        """A rule at each mark of y, and the labels of both axes, which do not overlap."""
        for mark in y_marks:
            at = _px(self.y(mark))
            yield f'<path d="M0 {at}H{_px(self.width)}" stroke="var(--rule)"/>'
            yield _text(f"{mark:,.4g}", -6, self.y(mark) + 4, "end")
        free = -math.inf
        for mark in x_marks:
            half = _width(x_text(mark)) / 2
            if self.x(mark) - half >= free:
                free = self.x(mark) + half + 6
                yield _text(x_text(mark), self.x(mark), self.height + 16, "middle")
        if titles[0]:
            yield _text(titles[0], self.width / 2, self.height + 34, "middle")
        if titles[1]:
            at = f"rotate(-90)translate({_px(-self.height / 2)} -34)"
            yield f"<g{attributes(transform=at)}>{_text(titles[1], 0, 0, 'middle')}</g>"


_Titles = tuple[str, str]


def _px(value: float) -> str:
    """At one decimal: a tenth of a pixel is not visible."""
    return f"{round(value, 1) + 0.0:g}"


def _width(text: str) -> float:
    """The width of a label in pixels, rather too large than too small."""
    return len(text) * _CHARACTER


def _text(text: str, x: float, y: float, anchor: str, fill: str = "var(--muted)") -> str:
    anchored = None if anchor == "start" else anchor
    named = attributes(x=_px(x), y=_px(y), text_anchor=anchored, fill=fill)
    return f"<text{named}>{escaped(text)}</text>"


def _line(d: str, style: RunStyle, width: float, title: str = "") -> str:
    dash = " ".join(map(str, style.dash)) or None
    named = attributes(
        d=d, stroke=style.colour, stroke_width=width, stroke_dasharray=dash, data_run=style.number
    )
    return f"<path{named}>{f'<title>{escaped(title)}</title>' if title else ''}</path>"


def _band(d: str, style: RunStyle) -> str:
    return f"<path{attributes(d=d, fill=style.colour, opacity=0.13, data_run=style.number)}/>"


def _marker(style: RunStyle, x: float, y: float, scale: float = 0.8) -> str:
    if style.marker is None:
        return ""
    at = f"translate({_px(x)} {_px(y)})scale({scale:g})"
    d = MARKERS[style.marker]
    return f"<path{attributes(d=d, fill=style.colour, transform=at, data_run=style.number)}/>"


def _svg(
    plot: _Plot, margins: tuple[float, float, float, float], about: _Titles, parts: Iterable[str]
) -> Markup:
    """The element, with a title and a description for screen readers.

    `margins` are those of the labels around the plot: left, top, right and bottom.
    """
    left, top, right, bottom = margins
    box = (-left, -top, left + plot.width + right, top + plot.height + bottom)
    named = attributes(
        viewBox=" ".join(map(_px, box)), style=f"max-width:{box[2]:g}px", fill="none", role="img"
    )
    said = f"<title>{escaped(about[0])}</title><desc>{escaped(about[1])}</desc>"
    return Markup(f"<svg{named}>{said}{''.join(parts)}</svg>")


@dataclass(frozen=True)
class Series:
    """One run: (step, mean, low, high) per evaluated step; a level is drawn as a flat line."""

    name: str
    style: RunStyle
    points: tuple[Point, ...]
    is_level: bool = False

    @property
    def has_band(self) -> bool:
        """Whether its seeds differ."""
        return not self.is_level and any(low != high for _, _, low, high in self.points)

    @property
    def last(self) -> float:
        """The mean of the last step; -inf without any."""
        return self.points[-1][1] if self.points else -math.inf

    @property
    def means(self) -> list[tuple[int, float]]:
        """The step and the mean of each point."""
        return [point[:2] for point in self.points]


@dataclass(frozen=True)
class Axes:
    """The range of steps and the tick marks of the scores, for all series of a chart."""

    first: int
    last: int
    marks: tuple[float, ...]

    @property
    def steps(self) -> list[int]:
        """The steps that have a label."""
        every = max(1, math.ceil((self.last + 1) / _MOST_X_LABELS))
        return [*range(self.first, 0), *range(0, self.last + 1, every)]

    @property
    def x_domain(self) -> list[float]:
        """The ends of the axis of steps, which has a length even if there is only one step."""
        ends = [float(self.first), float(self.last)]
        return [ends[0] - 0.5, ends[1] + 0.5] if self.first == self.last else ends


@dataclass(frozen=True)
class LineChart:
    """A chart of scores over steps: its name in file names, title, caption and runs.

    `scores` says what is drawn, for an axis that has no title above it.
    """

    name: str
    title: str
    scores: str
    caption: str
    series: tuple[Series, ...]

    @property
    def drawn(self) -> list[Series]:
        """The series that have a point."""
        return [one for one in self.series if one.points]

    @property
    def ranked(self) -> list[Series]:
        """These series, the best at the end first."""
        return sorted(self.drawn, key=lambda one: -one.last)

    @property
    def has_bands(self) -> bool:
        """Whether the lines are few enough for bands over their seeds."""
        return len(self.drawn) <= MANY_RUNS

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [one.name for one in self.series]

    def svg(self) -> Markup:
        """The chart of all runs; empty if no run has a point."""
        if not self.drawn:
            return Markup("")
        axes = axes_of(self.drawn)
        plot = _Plot(axes.x_domain, axes.marks, 800, 300)
        parts = [*plot.axes(axes.steps, axes.marks, step_name, ("after step", ""))]
        curves = [one for one in self.drawn if not one.is_level]
        if self.has_bands:
            for one in (one for one in curves if one.has_band):
                ends = [(x, high) for x, _, _, high in one.points]
                ends += [(x, low) for x, _, low, _ in reversed(one.points)]
                parts.append(_band(f"{plot.path(ends)}Z", one.style))
        for one in (one for one in self.drawn if one.is_level):
            named = attributes(
                d=plot.path([(end, one.last) for end in axes.x_domain]),
                stroke=one.style.colour,
                stroke_width=1.5,
                stroke_dasharray=" ".join(map(str, LEVEL_DASH)),
                data_run=one.style.number,
            )
            parts.append(f"<path{named}><title>{escaped(one.name)}</title></path>")
        width = 1.9 if self.has_bands else 1.2
        parts += [_line(plot.path(one.means), one.style, width, one.name) for one in curves]
        for number, one in enumerate(curves):
            # At every step, or at some of many: at other steps for each run.
            every = math.ceil(len(one.points) / _MOST_MARKERS)
            marked = one.means[number % every :: every]
            parts += [_marker(one.style, plot.x(x), plot.y(y)) for x, y in marked]
        ends_at = "; ".join(
            f"{one.name} {one.last:.1f} "
            f"{'at the start' if one.points[-1][0] < 0 else f'after step {one.points[-1][0]}'}"
            for one in self.drawn
        )
        left = max(_width(f"{mark:,.4g}") for mark in axes.marks) + 8
        return _svg(plot, (left, 10, 16, 40), (self.title, ends_at), parts)

    def panels(self, key: str) -> list[tuple[Series, Markup]]:
        """Each run with a curve and its small chart, on shared axes; all together are a grey band.

        The band reaches from the lowest to the highest mean of the runs at each step. Levels are
        left out.
        """
        series = [one for one in self.drawn if not one.is_level]
        if not series:
            return []
        axes = axes_of(series, 4)
        marks = [axes.marks[0], axes.marks[-1]]
        plot = _Plot(axes.x_domain, marks, 150, 76)
        means: dict[int, list[float]] = {}
        for step, mean in (point for one in series for point in one.means):
            means.setdefault(step, []).append(mean)
        everyone = [(step, max(means[step])) for step in sorted(means)]
        everyone += [(step, min(means[step])) for step in sorted(means, reverse=True)]
        named = attributes(d=f"{plot.path(everyone)}Z", fill="var(--muted)", opacity=0.16)
        frame = [*plot.axes([axes.first, axes.last], marks, step_name), f"<path{named}/>"]
        margins = (max(_width(f"{mark:,g}") for mark in marks) + 8, 8, 14, 20)
        found = []
        for one in series:
            parts = [*frame, _line(plot.path(one.means), one.style, 2)]
            if len(one.points) == 1:  # a line would be invisible
                parts.append(_marker(one.style, plot.x(one.points[0][0]), plot.y(one.last)))
            about = (f"{one.name}: {key} after each step", f"{one.last:.1f} at the end")
            found.append((one, _svg(plot, margins, about, parts)))
        return found


def axes_of(series: Iterable[Series], count: int = 7) -> Axes:
    """Axes that hold every point; `series` has at least one.

    They are at least five points of score high, so that noise does not look like a trend.
    """
    points = [point for one in series for point in one.points]
    values = [value for point in points for value in point[1:]]
    low, high = _at_least_high(min(values), max(values))
    marks = ticks(0 if 0 <= low < high / 2 else low, high, count)
    steps = [point[0] for point in points]
    return Axes(min(0, *steps), max(steps), tuple(marks))


def _at_least_high(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis of scores in percent, around these ones.

    >>> _at_least_high(40.0, 41.0), _at_least_high(0.5, 1.0), _at_least_high(98.0, 99.0)
    ((38.0, 43.0), (0.0, 5.0), (95.0, 100.0))
    """
    lacking = max(0.0, _LEAST_HEIGHT - (high - low))
    bottom = low - lacking / 2
    bottom = 0.0 if bottom < 0 <= low else bottom
    bottom = min(bottom, _MOST_SCORE - _LEAST_HEIGHT) if high <= _MOST_SCORE else bottom
    return bottom, max(high, bottom + _LEAST_HEIGHT)


@dataclass(frozen=True)
class PanelLine:
    """One run: x (N,) ascending, the mean (N,) with NaN where the line is broken, and its range.

    `low` and `high` (N,) are of the lowest and highest seed.
    """

    run: str
    x: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def has_band(self) -> bool:
        """Whether its seeds differ."""
        return bool((self.low < self.high).any())


@dataclass(frozen=True)
class Panel:
    """One quantity of all the runs that have it, such as a term of the loss."""

    name: str
    lines: tuple[PanelLine, ...]

    def svg(
        self, x_title: str, x_range: tuple[float, float], styles: Mapping[str, RunStyle]
    ) -> Markup:
        """The chart, with x from the first to the last of `x_range`; empty without any value."""
        lines = [one for one in self.lines if np.isfinite(one.mean).any()]
        if not lines:
            return Markup("")
        ends = [values[np.isfinite(values)] for one in lines for values in (one.low, one.high)]
        marks = ticks(float(np.concatenate(ends).min()), float(np.concatenate(ends).max()))
        plot = _Plot(x_range, marks, 320, 160)
        steps = [mark for mark in ticks(*x_range, 8) if mark % 1 == 0]
        inside = [mark for mark in steps if x_range[0] <= mark <= x_range[1]]
        parts = [*plot.axes(inside, marks, lambda mark: f"{mark:g}", (x_title, ""))]
        for one in lines:
            if one.has_band:
                parts += [_band(d, styles[one.run]) for d in _bands(plot, one)]
        for one in lines:
            style, known = styles[one.run], np.isfinite(one.mean)
            points = zip(one.x.tolist(), one.mean.tolist(), strict=True)
            parts.append(_line(plot.path(points), style, 1.4, one.run))
            # The marker at the end of a line tells runs apart in grey.
            x, y = one.x[known][-1], one.mean[known][-1]
            parts.append(_marker(style, plot.x(float(x)), plot.y(float(y))))
        about = "; ".join(
            f"{one.run} ends at {one.mean[np.isfinite(one.mean)][-1]:.4g}" for one in lines
        )
        left = max(_width(f"{mark:,.4g}") for mark in marks) + 8
        return _svg(plot, (left, 10, 12, 40), (f"{self.name} over the steps", about), parts)


def _bands(plot: _Plot, one: PanelLine) -> Iterator[str]:
    """The band of a line, in a piece for each of its own."""
    known = np.isfinite(one.low)
    breaks = np.flatnonzero(np.diff(known.astype(int))) + 1
    for rows in np.split(np.arange(len(known)), breaks):
        if known[rows[0]]:
            ends = [*zip(one.x[rows].tolist(), one.high[rows].tolist(), strict=True)]
            ends += zip(one.x[rows][::-1].tolist(), one.low[rows][::-1].tolist(), strict=True)
            yield f"{plot.path(ends)}Z"


@dataclass(frozen=True)
class BarPanel:
    """One run: final and just-learned score per task, NaN where unknown."""

    name: str
    style: RunStyle
    final: tuple[float, ...]
    learned: tuple[float, ...]


@dataclass(frozen=True)
class BarChart:
    """The panels of the runs, which share the tasks: its name in file names, title, caption."""

    name: str
    title: str
    caption: str
    tasks: tuple[str, ...]
    panels: tuple[BarPanel, ...]

    @property
    def marks(self) -> list[float]:
        """The tick marks of the scores, for all panels."""
        values = [v for one in self.panels for v in (*one.final, *one.learned)]
        values = [value for value in values if not math.isnan(value)]
        return ticks(min([0.0, *values]), max([*values, 0.0]) or 1.0, 4)

    @property
    def highest(self) -> float:
        """The largest of the final scores; 1 if none is positive."""
        values = [value for one in self.panels for value in one.final if not math.isnan(value)]
        return max([*values, 0.0]) or 1.0

    @property
    def key(self) -> str:
        """What bars and ticks are, for an axis that has no caption."""
        return f"{self.title}; tick: just after learning it"

    @property
    def names(self) -> list[str]:
        """The names of runs and of tasks that it shows."""
        return [*(one.name for one in self.panels), *self.tasks]

    def svgs(self) -> list[tuple[BarPanel, Markup]]:
        """Each run with its `svg`, in order, on one scale."""
        labels = [textwrap.wrap(printable(task), 24) or [""] for task in self.tasks]
        row = _LINE * max(map(len, labels)) + 6
        plot = _Plot(self.marks, (1.0, 0.0), 190, row * len(labels))
        frame = []
        for mark in self.marks:
            d = f"M{_px(plot.x(mark))} 0V{_px(plot.height)}"
            frame.append(f'<path d="{d}" stroke="var(--rule)"/>')
            frame.append(_text(f"{mark:,.4g}", plot.x(mark), plot.height + 16, "middle"))
        for number, lines in enumerate(labels):
            top = row * (number + 0.5) + 4 - _LINE * (len(lines) - 1) / 2
            frame += [_text(one, -6, top + _LINE * at, "end") for at, one in enumerate(lines)]
        left = max(_width(one) for lines in labels for one in lines) + 8
        said = f"{len(labels)} tasks; bar: last model, tick: just after learning"
        found = []
        for panel in self.panels:
            parts = list(frame)
            for number, (final, learned) in enumerate(zip(panel.final, panel.learned, strict=True)):
                middle = row * (number + 0.5)
                if not math.isnan(final):
                    ends = sorted((plot.x(0), plot.x(final)))
                    d = f"M{_px(ends[0])} {_px(middle - 5)}H{_px(ends[1])}v10H{_px(ends[0])}z"
                    fill, run = panel.style.colour, panel.style.number
                    parts.append(f"<path{attributes(d=d, fill=fill, opacity=0.85, data_run=run)}/>")
                if not math.isnan(learned):
                    d = f"M{_px(plot.x(learned))} {_px(middle - 7.5)}v15"
                    parts.append(f"<path{attributes(d=d, stroke='var(--ink)', stroke_width=2)}/>")
            about = (f"{panel.name}: {self.title}", said)
            found.append((panel, _svg(plot, (left, 4, 24, 22), about, parts)))
        return found


@dataclass(frozen=True)
class HistogramPanel:
    """A name and, for each side, (180,) percent of its angles in each degree."""

    name: str
    shares: tuple[Floats, Floats]


@dataclass(frozen=True)
class Scale:
    """Tick marks of both axes, shared by charts that are to be compared."""

    degrees: list[float]
    percents: list[float]


@dataclass(frozen=True)
class HistogramChart:
    """The histograms of one run: its name in file names, title, run, sides and panels."""

    name: str
    title: str
    run: str
    style: RunStyle
    sides: tuple[str, str]
    panels: tuple[HistogramPanel, ...]
    scale: Scale

    @property
    def caption(self) -> str:
        """What its axes and lines are."""
        return (
            f"{self.run}: percent of the angles in each degree, per pair of steps. "
            f"Solid: {self.sides[0]}. Dashed: {self.sides[1]}."
        )

    @property
    def key(self) -> str:
        """The same for an axis that has no caption."""
        solid, dashed = self.sides
        return f"{self.title}: degrees, percent of the angles; solid: {solid}, dashed: {dashed}"

    @property
    def names(self) -> list[str]:
        """The names that it shows."""
        return [one.name for one in self.panels]

    def svgs(self) -> list[tuple[HistogramPanel, Markup]]:
        """Each panel with its `svg`, in order."""
        degrees, percents = self.scale.degrees, self.scale.percents
        plot = _Plot([0.0, degrees[-1]], [0.0, percents[-1]], 190, 90)
        frame = [*plot.axes(degrees, percents, lambda mark: f"{mark:g}\u00b0")]
        left = max(_width(f"{mark:,.4g}") for mark in percents) + 8
        said = f"percent of the angles, {' and '.join(self.sides)}"
        found = []
        for panel in self.panels:
            parts = list(frame)
            for side, share in enumerate(panel.shares):
                steps: list[_Place] = [(0.0, 0.0)]
                for degree, percent in outline(share, self.scale):
                    steps += [(degree, steps[-1][1]), (degree, percent)]
                d, colour = plot.path(steps), f"var(--run-{side + 1})"
                dash = " ".join(map(str, SIDE_DASHES[side])) or None
                parts.append(f"<path{attributes(d=f'{d}Z', fill=colour, opacity=0.15)}/>")
                named = attributes(d=d, stroke=colour, stroke_width=1.5, stroke_dasharray=dash)
                parts.append(f"<path{named}/>")
            about = (f"{self.title}, {panel.name}", said)
            found.append((panel, _svg(plot, (left, 8, 18, 22), about, parts)))
        return found


def scale_of(panels: Sequence[HistogramPanel]) -> Scale | None:
    """A scale that fits all panels; None if none of them has an angle."""
    every = [share for panel in panels for share in panel.shares if share.any()]
    if not every:
        return None
    reach = max(1 + int(np.searchsorted(np.cumsum(one), _KEEP * one.sum())) for one in every)
    return Scale(ticks(0, reach, 4), ticks(0, max(float(one.max()) for one in every), 3))


def outline(share: Floats, scale: Scale) -> list[tuple[int, float]]:
    """(degree, percent) from which a curve steps to the next degree, closed by a zero."""
    shown = share[: int(scale.degrees[-1])].tolist()
    return [*enumerate(shown), (len(shown), 0.0)]


@dataclass(frozen=True)
class ScatterPoint:
    """One run: the lowest seed, the mean and the highest seed of both measures."""

    name: str
    style: RunStyle
    x: Range
    y: Range


@dataclass(frozen=True)
class ScatterChart:
    """The points of the runs, of which there is at least one, with titles of x and y."""

    title: str
    caption: str
    titles: tuple[str, str]
    points: tuple[ScatterPoint, ...]

    @property
    def unnamed(self) -> int:
        """How many points have no room for a label."""
        return len(self.points) - len(self._labels)

    @cached_property
    def _plot(self) -> _Plot:
        xs, ys = (_domain([getattr(one, axis) for one in self.points]) for axis in "xy")
        return _Plot(xs, ys, 440, 300)

    @cached_property
    def _labels(self) -> dict[int, _Place]:
        """The left end and the middle of each name that has room, by the number of its point."""
        plot, room = self._plot, 5
        places = [(plot.x(one.x[1]), plot.y(one.y[1])) for one in self.points]
        taken = [(x - room, y - room, x + room, y + room) for x, y in places]
        found: dict[int, _Place] = {}
        for number, (x, y) in enumerate(places):
            width = _width(printable(self.points[number].name))
            for left, middle in _label_places(x, y, width):
                box = (left, middle - 7, left + width, middle + 7)
                is_inside = box[0] >= 0 <= box[1] and box[2] <= 440 and box[3] <= 300
                if is_inside and not any(_overlap(box, one) for one in taken):
                    taken.append(box)
                    found[number] = left, middle
                    break
        return found

    def svg(self) -> Markup:
        """The chart."""
        plot = self._plot
        marks = ticks(plot.ys[0], plot.ys[-1]), ticks(plot.xs[0], plot.xs[-1])
        titles = (printable(self.titles[0]), printable(self.titles[1]))
        parts = [*plot.axes(marks[1], marks[0], lambda mark: f"{mark:.4g}", titles)]
        for one in self.points:
            for ends in (
                [(one.x[0], one.y[1]), (one.x[2], one.y[1])],
                [(one.x[1], one.y[0]), (one.x[1], one.y[2])],
            ):
                solid = RunStyle(one.style.number, one.style.place and one.style.place % COLOURS)
                parts.append(_line(plot.path(ends), solid, 1.2))
            place = plot.x(one.x[1]), plot.y(one.y[1])
            dot = attributes(cx=_px(place[0]), cy=_px(place[1]), r=4, fill=one.style.colour)
            number = attributes(data_run=one.style.number)
            parts.append(_marker(one.style, *place, scale=1.2) or f"<circle{dot}{number}/>")
        for number_of_point, (left, middle) in self._labels.items():
            one = self.points[number_of_point]
            # Names in the colours of some runs are too faint to read.
            label = _text(printable(one.name), left, middle + 4, "start", "var(--ink)")
            parts.append(f"<g{attributes(data_run=one.style.number)}>{label}</g>")
        said = "; ".join(f"{one.name} {one.x[1]:.2f}, {one.y[1]:.2f}" for one in self.points)
        about = (self.title, f"{self.titles[0]}, {self.titles[1]}: {said}")
        return _svg(plot, (48, 10, 16, 40), about, parts)


def _domain(ranges: Sequence[Range]) -> list[float]:
    values = [value for one in ranges for value in one]
    room = max(max(values) - min(values), 1.0) * 0.06
    return ticks(min(values) - room, max(values) + room)


def _label_places(x: float, y: float, width: float) -> Iterator[_Place]:
    """Places for a label of a point at (x, y), the best first."""
    for away in (0, 14, -14, 28, -28):
        yield x + 9, y + away
        yield x - 9 - width, y + away
        if away:
            yield x - width / 2, y + away


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not apart


@dataclass(frozen=True)
class HeatMap:
    """One run: its own scores (steps, tasks).

    `steps` and `tasks` number the rows and columns; the model before the first task is step -1.
    """

    run: str
    style: RunStyle
    steps: tuple[int, ...]
    tasks: tuple[int, ...]
    own: Floats


@dataclass(frozen=True)
class HeatChart:
    """The heat maps of all runs on one scale, which ends at `highest`."""

    name: str
    title: str
    caption: str
    panels: tuple[HeatMap, ...]
    highest: float

    @property
    def names(self) -> list[str]:
        """The names of the runs."""
        return [one.run for one in self.panels]


def shade(value: float, highest: float) -> int:
    """The shade of a score, from 0 to SHADES.

    >>> shade(25, 50), shade(-1, 50), shade(50, 50)
    (5, 0, 10)
    """
    return round(SHADES * min(max(value / highest, 0.0), 1.0))


def picture(matrix: Floats, highest: float) -> str:
    """A (steps, tasks) matrix as the address of a PNG, data and all; NaN is transparent.

    A cell is a pixel: 50 x 50 cells are one kilobyte. As SVG, a hundred such matrices would be 25
    MB. The numbers themselves are in shaded tables, which sort, wrap and copy, as no picture does.
    """
    shades = np.round(SHADES * np.clip(matrix / highest, 0, 1))
    pixels = np.where(np.isnan(shades), 0, shades + 1).astype(np.uint8)
    height, width = pixels.shape
    # A zero is faint, so that its cell is visible.
    opacities = [round(255 * (0.06 + 0.94 * place / SHADES)) for place in range(SHADES + 1)]
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels])  # filter 0: bytes as they are
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(_INK) * (SHADES + 2)),
        (b"tRNS", bytes([0, *opacities])),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
