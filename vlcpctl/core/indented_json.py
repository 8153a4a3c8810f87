"""Indented JSON, as `json.dumps(indent=1)` writes it, of values that are mostly lists of numbers.

With an indent, json encodes number by number in Python. Here its encoder in C writes each list of
numbers, with the indented line break as the separator of items.
"""

from __future__ import annotations

import json
from functools import lru_cache

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def indented_json(value: object, level: int = 0) -> str:
    """The text of a JSON value with text as keys, non-ASCII characters as they are.

    Raises ValueError for a number that is not finite.
    """
    start, end = "\n" + " " * (level + 1), "\n" + " " * level
    if isinstance(value, dict) and value:
        parts = (f"{_text(key)}: {indented_json(one, level + 1)}" for key, one in value.items())
        return f"{{{start}{f',{start}'.join(parts)}{end}}}"
    if isinstance(value, list | tuple) and value:
        if not any(isinstance(one, dict | list | tuple) for one in value):
            return f"[{start}{_encoder(start).encode(value)[1:-1]}{end}]"
        return f"[{start}{f',{start}'.join(indented_json(one, level + 1) for one in value)}{end}]"
    return _text(value)


@lru_cache
def _encoder(start: str) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(f",{start}", ": "), ensure_ascii=False, allow_nan=False)
