"""The names of kept columns beside those of a layout."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def renamed(kept: Sequence[str], own: Collection[str]) -> dict[str, str]:
    """The name of each kept column in an export whose own columns are `own`.

    A name that the export uses itself gets a prefix.

    >>> renamed(["customer", "caption"], ["caption", "key"])
    {'customer': 'customer', 'caption': 'source_caption'}
    """
    found: dict[str, str] = {}
    for name in kept:
        new = name
        while new in own or new in found.values() or (new != name and new in kept):
            new = f"source_{new}"
        found[name] = new
    return found
