"""Differences between the command that made an output and the one that would make it now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def identity_differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """The differences between two identities, one phrase per value, sorted by dotted name.

    >>> identity_differences({"seed": 0}, {"seed": 1})
    ['seed is 0 there and 1 here']
    >>> identity_differences({"settings": {"lr": 0.1, "eps": 0}}, {"settings": {"lr": 1, "eps": 0}})
    ['settings.lr is 0.1 there and 1 here']
    """
    there, here = dict(_leaves(found)), dict(_leaves(wanted))
    return [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def _leaves(values: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted name, as they read back from JSON.

    An identity on disk has lists where one in memory has tuples; that is not a difference.
    """
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", json.loads(json.dumps(value))
