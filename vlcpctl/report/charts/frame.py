"""Shared parts of the charts: outer element, tick positions, text that fits, run colours."""

from __future__ import annotations

import math

from vlcpctl.report.markup import Markup, element

FONT = 11  # px of a label
_CHARACTER = 0.56  # mean width of a character, in font sizes
_COLOURS = 6  # --run-1 to --run-6 in style.css


def svg(title: str, description: str, size: tuple[float, float], *children: str) -> Markup:
    """A chart that scales down with the page and that screen readers can name."""
    width, height = size
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        style=f"max-width:{width:g}px",
        role="img",
        aria_label=f"{title}. {description}",
    )


def label(text: str, x: float, y: float, css: str = "", anchor: str = "start") -> Markup:
    """A text whose baseline is at y."""
    return element(
        "text", text, x=round(x, 1), y=round(y, 1), class_=css or None, text_anchor=anchor
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """A straight line."""
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return element("line", **{name: round(at, 1) for name, at in ends.items()}, class_=css)


def text_width(text: str) -> float:
    """The approximate width of a label in pixels."""
    return len(text) * FONT * _CHARACTER


def shortened(text: str, room: float) -> str:
    """The text, cut with an ellipsis if it is wider than `room` pixels."""
    if text_width(text) <= room:
        return text
    return text[: max(1, int(room / (FONT * _CHARACTER)) - 1)].rstrip() + "\u2026"


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


def colour(index: int) -> str:
    """The CSS classes of the run with this index; colours repeat with dashes."""
    dash = f" dash-{index // _COLOURS % 3}" if index >= _COLOURS else ""
    return f"run-{index % _COLOURS + 1}{dash}"
