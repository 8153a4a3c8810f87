"""HTML and SVG elements; every child that is not itself markup is escaped."""

from __future__ import annotations

from html import escape

# HTML elements that have no closing tag.
_VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is already markup and must not be escaped again."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """One element; `_` in an attribute's name is `-`, a trailing one is dropped (`class_`).

    >>> element("b", "a < b", class_="x")
    '<b class="x">a &lt; b</b>'
    """
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{pairs}>")
    return Markup(f"<{tag}{pairs}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Markup:
    """The children concatenated, escaping those that are not markup."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(child, quote=False) for child in children
        )
    )


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
