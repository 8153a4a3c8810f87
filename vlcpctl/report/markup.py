"""HTML and SVG elements; every child that is not itself markup is escaped and made printable."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from vlcpctl.core.printable import printable

# HTML elements that have no closing tag.
_VOID = frozenset({"meta", "br", "img"})


class Markup(str):
    """Text that is already markup and must not be escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """One element; `_` in an attribute's name is `-`, a trailing one is dropped (`class_`).

    >>> element("b", "a < b", class_="x")
    '<b class="x">a &lt; b</b>'
    """
    pairs = "".join(
        _attribute(name, f"{value:.6g}" if isinstance(value, float) else str(value))
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
    return child if isinstance(child, Markup) else _escaped(child)


# Charts repeat positions and classes many thousand times.
@lru_cache(maxsize=10_000)
def _attribute(name: str, value: str) -> str:
    return f' {name.rstrip("_").replace("_", "-")}="{escape(printable(value))}"'


@lru_cache(maxsize=10_000)
def _escaped(text: str) -> str:
    return escape(printable(text), quote=False)
