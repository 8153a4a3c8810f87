"""Indented JSON, as `json.dumps(indent=1)` writes it, of values that are mostly lists of numbers.

With an indent, json encodes number by number in Python. Here its encoder in C writes each list of
numbers, with the indented line break as the separator of items. Arrays are written as a whole.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from vlcpctl.core.number_lists import Numbers, as_lists, compact_json

_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_NESTED = (dict, list, tuple, np.ndarray)


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
        if not any(isinstance(one, _NESTED) for one in value):
            return f"[{start}{_encoder(start).encode(value)[1:-1]}{end}]"
        return f"[{start}{f',{start}'.join(indented_json(one, level + 1) for one in value)}{end}]"
    return _text(value)


def _array(values: Numbers, level: int) -> str:
    text = compact_json(values) if values.size else None
    if text is None:
        return indented_json(as_lists(values), level)
    breaks = ["\n" + " " * (level + depth) for depth in range(values.ndim + 1)]
    text = text.strip("[]")
    if values.ndim == 1:
        return f"[{breaks[1]}{text.replace(',', ',' + breaks[1])}{breaks[0]}]"
    # The breaks between rows are put in last: they have a comma that is not between numbers.
    rows = text.replace("],[", "|").replace(",", "," + breaks[2])
    rows = rows.replace("|", f"{breaks[1]}],{breaks[1]}[{breaks[2]}")
    return f"[{breaks[1]}[{breaks[2]}{rows}{breaks[1]}]{breaks[0]}]"


@lru_cache
def _encoder(start: str) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(f",{start}", ": "), ensure_ascii=False, allow_nan=False)
