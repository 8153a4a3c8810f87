"""Numbers as JSON in bulk, with the bytes and the roundings of number by number.

Indented JSON is as `json.dumps(indent=1)` writes it, but a list of numbers takes one line: with a
line for each number, half of a large file is spaces. With an indent, json encodes item by item in
Python; here its encoder in C writes each list without nested values, and orjson each array.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Between these magnitudes, json and orjson alike write numbers without an exponent.
_LEAST, _MOST = 1e-4, 1e16
_WHOLE = 2.0**52  # from here on, every double is an integer
_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_NESTED = (dict, list, tuple, np.ndarray)
_NUMBERS = {int, float, type(None)}


def rounded(values: Numbers, decimals: int) -> Numbers:
    """A copy of an array, each number as the built-in `round` has it: numpy's may be another.

    >>> rounded(np.array([2.675, 0.145, np.nan]), 2).tolist()
    [2.67, 0.14, nan]
    """
    scaled = values * 10.0**decimals
    found: Numbers = np.rint(scaled) / 10.0**decimals
    # The product is off by half a unit of its last place, which matters next to a half only.
    size = np.abs(scaled)
    doubtful = (np.abs(size - np.floor(size) - 0.5) <= size * 1e-15) | (size >= _WHOLE)
    for place in np.argwhere(doubtful & np.isfinite(values)).tolist():
        found[*place] = round(float(values[*place]), decimals)
    return found


def as_lists(values: Numbers) -> list[Any]:
    """The numbers of an array as nested lists, None for NaN."""
    found = values.astype(object)
    found[np.isnan(values)] = None
    lists: list[Any] = found.tolist()
    return lists


def are_plain(values: Numbers) -> bool:
    """Whether json writes all of these numbers as orjson does; NaN does not count."""
    sizes = np.abs(values[~np.isnan(values)])
    return bool(((sizes == 0) | ((sizes >= _LEAST) & (sizes < _MOST))).all())


def compact_json(values: Numbers) -> str | None:
    """An array as JSON without spaces, null for NaN; None if its numbers are not plain."""
    if not are_plain(values):
        return None
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY).decode()


def sorted_json(numbers: Mapping[str, float]) -> str:
    """The `canonical_json` of numbers that are plain."""
    return orjson.dumps(numbers, option=orjson.OPT_SORT_KEYS).decode()


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
