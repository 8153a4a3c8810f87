"""Indented JSON, as `json.dumps(indent=1)` writes it, but a list of numbers takes one line.

With a line for each number, half of a large file is spaces. With an indent, json encodes item by
item in Python; here its encoder in C writes each list without nested values, and orjson each array.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from vlcpctl.core.number_lists import Numbers, as_lists, compact_json

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_NESTED = (dict, list, tuple, np.ndarray)
_NUMBERS = {int, float, type(None)}


def indented_json(value: object, level: int = 0) -> str:
    """The text of a JSON value with text as keys, non-ASCII characters as they are.

    It may hold arrays of floats, (N,) or (N, M), in which NaN is null. Raises ValueError for any
    other number that is not finite.
    """
    if isinstance(value, np.ndarray):
        return _array(value, level)
    start, end = "\n" + " " * (level + 1), "\n" + " " * level
    if isinstance(value, dict) and value:
        parts = (f"{_text(key)}: {indented_json(one, level + 1)}" for key, one in value.items())
        return f"{{{start}{f',{start}'.join(parts)}{end}}}"
    if isinstance(value, list | tuple) and value:
        kinds = set(map(type, value))
        if kinds <= _NUMBERS:
            return _text(value)
        if not any(issubclass(kind, _NESTED) for kind in kinds):
            return f"[{start}{_encoder(start).encode(value)[1:-1]}{end}]"
        return f"[{start}{f',{start}'.join(indented_json(one, level + 1) for one in value)}{end}]"
    return _text(value)


def _array(values: Numbers, level: int) -> str:
    if values.ndim == 1:
        text = compact_json(values)
        return _text(as_lists(values)) if text is None else text.replace(",", ", ")
    if not len(values):
        return "[]"
    start, end = "\n" + " " * (level + 1), "\n" + " " * level
    text = compact_json(values)
    if text is None:
        rows = [_text(row) for row in as_lists(values)]
    else:
        rows = [f"[{row}]" for row in text[2:-2].replace(",", ", ").split("], [")]
    return f"[{start}{f',{start}'.join(rows)}{end}]"


@lru_cache
def _encoder(start: str) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(f",{start}", ": "), ensure_ascii=False, allow_nan=False)
