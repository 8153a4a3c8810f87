"""Text as HTML: what is not itself markup is escaped and made printable."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from vlcpctl.core.words import printable


class Markup(str):
    """Text that is already markup and must not be escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


# Pages repeat names, scores, positions and classes many thousand times.
@lru_cache(maxsize=10_000)
def escaped(text: str) -> Markup:
    """The text as the content of an element, not of an attribute: its quotes stay.

    >>> escaped("a < 'b'")
    "a &lt; 'b'"
    """
    return Markup(escape(printable(text), quote=False))


def attributes(**named: object) -> Markup:
    """Attributes of an element without those that are None.

    In a name, `_` is `-`, and a trailing one is dropped (`class_`).

    >>> attributes(class_="x", data_run=3, title=None)
    ' class="x" data-run="3"'
    """
    return Markup(
        "".join(
            _attribute(name, f"{value:.6g}" if isinstance(value, float) else str(value))
            for name, value in named.items()
            if value is not None
        )
    )


@lru_cache(maxsize=10_000)
def _attribute(name: str, value: str) -> str:
    return f' {name.rstrip("_").replace("_", "-")}="{escape(printable(value))}"'
