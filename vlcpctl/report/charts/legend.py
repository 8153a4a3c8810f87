"""The key to the runs of a chart as a list that wraps: a sample of each line, and its name.

Vega's own legends cut long names and cannot wrap on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Iterable

from vlcpctl.report.charts.style import LEVEL_DASH, RunStyle
from vlcpctl.report.markup import Markup, element

_SHAPES = {
    "circle": "M19 6a4 4 0 1 0-8 0a4 4 0 1 0 8 0z",
    "square": "M11.5 2.5h7v7h-7z",
    "triangle-up": "M15 1.5l4.5 8h-9z",
    "diamond": "M15 1l4 5l-4 5l-4-5z",
    "cross": "M13.5 1.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "triangle-down": "M15 10.5l4.5-8h-9z",
    "triangle-left": "M10.5 6l8-4.5v9z",
}


def sample(style: RunStyle, *, is_level: bool = False) -> Markup:
    """A piece of the run's line with its marker."""
    dash = LEVEL_DASH if is_level else style.dash
    parts = [
        element("path", d="M0 6h30", stroke=style.colour, stroke_dasharray=_dash(dash)),
        *(
            [element("path", d=_SHAPES[style.marker], fill=style.colour)]
            if style.marker is not None and not is_level
            else []
        ),
    ]
    return element(
        "svg", *parts, viewBox="0 0 30 12", class_="sample", stroke_width="1.8", aria_hidden="true"
    )


def legend(entries: Iterable[tuple[str, RunStyle, bool, str]]) -> Markup:
    """A list of (name, style, whether its line is level, text behind the name)."""
    items = [
        element(
            "li",
            sample(style, is_level=is_level),
            element("span", name, class_="name"),
            element("span", f" {text}", class_="value") if text else "",
            data_run=style.number,
        )
        for name, style, is_level, text in entries
    ]
    return element("ul", *items, class_="legend") if items else Markup("")


def _dash(dash: tuple[int, ...]) -> str | None:
    return " ".join(map(str, dash)) or None
