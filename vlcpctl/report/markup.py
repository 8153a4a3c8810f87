"""HTML and SVG elements; every child that is not itself markup is escaped and made printable."""

from __future__ import annotations

from html import escape

from vlcpctl.core.printable import printable

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
        f' {name.rstrip("_").replace("_", "-")}="{escape(printable(_value(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{pairs}>")
    return Markup(f"<{tag}{pairs}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Markup:
    """The children concatenated, escaping those that are not markup."""
    return Markup("".join(_markup(child) for child in children))


def _markup(child: str) -> str:
    return child if isinstance(child, Markup) else escape(printable(child), quote=False)


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
