"""Vega-Lite specifications as inline SVG, by vl-convert: offline, and in the page's own colours.

CSS variables and `currentColor` pass through Vega-Lite unchanged, so one SVG serves the light and
the dark scheme. What the page sets itself (fonts) or does not need (roles of groups, invisible
backgrounds) is taken out, which makes a chart two to four times smaller.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any
from xml.parsers import expat

from vlcpctl.core.errors import VlcpError
from vlcpctl.core.printable import shortened
from vlcpctl.report.markup import Markup, attributes, escaped

FONT = 11  # px of a label
# Wider than most fonts, so that no label is cut whatever font the reader's page has.
_CHARACTER = 0.62

_NUMBER = re.compile(r"-?\d*\.\d+(?:e-?\d+)?")
_RUN = re.compile(r"r\d+")
_UNUSED = frozenset(
    {"aria-hidden", "aria-label", "aria-roledescription", "class", "role", "font-family"}
    | {"pointer-events"}
)
_LENGTHS = frozenset({"d", "transform", "x", "x1", "x2", "y", "y1", "y2", "width", "height"})
_DEFAULTS = {
    "opacity": "1",
    "stroke-width": "1",
    "font-size": f"{FONT}px",
    "font-weight": "normal",
    "text-anchor": "start",
    "stroke-miterlimit": "10",
    "transform": "translate(0,0)",
}

CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "labelFontSize": FONT,
        "labelLimit": 0,
        "labelPadding": 6,
        "titleColor": "var(--muted)",
        "titleFontSize": FONT,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "titleLimit": 0,
        "gridColor": "var(--rule)",
        "domain": False,
        "ticks": False,
    },
    # Vega drops labels that overlap in its own font; the page's font may be wider.
    "axisX": {"grid": False, "labelOverlap": True, "labelSeparation": 6, "labelFlush": False},
}


def svg(
    spec: Mapping[str, Any], title: str, description: str, names: Mapping[str, str] | None = None
) -> Markup:
    """The specification as an `svg` element that screen readers can name.

    `names` has the name of each run by its id ("r12"): marks whose `description` channel is an id
    get the attribute `data-run`, by which page.js hides and highlights them, and lines a tooltip.
    """
    root = _drawn(spec)
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    box = (0.0, 0.0, width, height)
    return _outer(box, title, description, _children(root, names or {}))


def panels(
    rows: Sequence[Mapping[str, Any]],
    layers: Sequence[Mapping[str, Any]],
    titles: Sequence[tuple[str, str]],
    size: tuple[int, int],
    margins: tuple[float, float, float, float],
) -> list[Markup]:
    """The panels of one chart as `svg` elements of their own, on one scale.

    One specification for all costs a fraction of one each. A row says in `panel` to which of them
    it belongs; `titles` has the title and the description of each. `size` is the width and height
    of a panel, to which the `margins` for the labels are added: left, top, right and bottom.
    """
    width, height = size
    left, top, right, bottom = margins
    spec = {
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "ordinal", "header": None},
        "columns": 1,
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "spec": {"width": width, "height": height, "layer": layers},
    }
    box = (-left, -top, left + width + right, top + height + bottom)
    root = _drawn(spec)
    group = next(one for one in root.iter("g") if "cell" in one.get("class", "").split())
    found = []
    for cell, (title, description) in zip(group, titles, strict=True):
        cell.attrib.pop("transform", None)  # its place among the other cells
        found.append(_outer(box, title, description, _children(cell, {})))
    return found


def nominal(field: str, looks: Mapping[Any, Any]) -> dict[str, Any]:
    """The channel of a field whose values have these looks: colours, dashes or shapes."""
    scale = {"domain": [*looks], "range": [*looks.values()]}
    return {"field": field, "type": "nominal", "legend": None, "scale": scale}


def quantity(field: str, ends: Sequence[float], axis: Mapping[str, Any]) -> dict[str, Any]:
    """The channel of a number on an axis from the first to the last of `ends`."""
    scale = {"domain": [ends[0], ends[-1]], "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def dashes(dash: Sequence[int]) -> list[int]:
    """The lengths of strokes and gaps; Vega-Lite takes [1, 0] for solid."""
    return [*dash] or [1, 0]


def text_width(text: str) -> float:
    """The approximate width of a label in pixels, rather too large than too small."""
    return len(text) * FONT * _CHARACTER


def _drawn(spec: Mapping[str, Any]) -> ET.Element:
    import vl_convert  # starts no engine before the first chart

    try:
        text = vl_convert.vegalite_to_svg(
            {"background": None, "padding": 4, "config": CONFIG, **spec},
            vl_version="6.1",
            allowed_base_urls=[],  # a chart has its data; nothing may be fetched
        )
    except BaseException as error:
        # Its engine panics where no thread can be started or no file opened; that is no Exception.
        if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
            raise
        raise VlcpError(f"cannot draw the charts: {shortened(error)}") from error
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(text, True)
    return builder.close()


def _outer(
    box: tuple[float, float, float, float], title: str, description: str, children: str
) -> Markup:
    named = attributes(
        viewBox=" ".join(f"{side:g}" for side in box),
        style=f"max-width:{box[2]:g}px",
        fill="none",
        role="img",
    )
    about = f"<title>{escaped(title)}</title><desc>{escaped(description)}</desc>"
    return Markup(f"<svg{named}>{about}{children}</svg>")


def _children(node: ET.Element, names: Mapping[str, str]) -> str:
    return "".join(_cleaned(child, names) for child in node)


def _cleaned(node: ET.Element, names: Mapping[str, str]) -> str:
    """The element without what the page does not need; empty if nothing of it is visible."""
    tag = node.tag
    if "role-title" in node.get("class", ""):
        return ""  # the number of a cell, which Vega-Lite writes even without a header
    if tag == "path" and not {"fill", "stroke"} & node.attrib.keys():
        return ""  # backgrounds and foregrounds of groups
    label = node.get("aria-label", "")
    kept = {
        name: _NUMBER.sub(_rounded, value) if name in _LENGTHS else value
        for name, value in node.items()
        if name not in _UNUSED and _DEFAULTS.get(name) != value
    }
    if tag in {"path", "line", "text"} and _RUN.fullmatch(label):
        kept["data-run"] = label[1:]
    children = _children(node, names)
    if label in names and "stroke" in kept and kept.get("fill") is None:
        children = f"<title>{escaped(names[label])}</title>{children}"
    if tag == "g" and not (children and kept):
        return children
    text = escaped(node.text or "") if tag in {"text", "tspan"} else ""
    return f"<{tag}{attributes(**kept)}>{text}{children}</{tag}>"


def _rounded(found: re.Match[str]) -> str:
    """At one decimal: a tenth of a pixel is not visible."""
    return f"{round(float(found[0]), 1) + 0.0:g}"
