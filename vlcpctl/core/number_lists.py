"""Arrays of floats as JSON in bulk, with the bytes and the roundings of number by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Between these magnitudes, json and orjson alike write numbers without an exponent.
_LEAST, _MOST = 1e-4, 1e16
_WHOLE = 2.0**52  # from here on, every double is an integer


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
