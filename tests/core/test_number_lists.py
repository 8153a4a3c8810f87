"""Arrays of numbers become JSON as number by number would, whatever the numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vlcpctl.core.number_lists import Numbers, as_lists, indented_json, rounded

_DRAW = np.random.default_rng(7)
HALVES = (_DRAW.integers(0, 10**9, 20_000) * 2 + 1) / 2e6  # next to a half at six decimals
NUMBERS = np.concatenate(
    [
        HALVES,
        -HALVES[:2000],
        _DRAW.uniform(-100, 100, 5000),
        10.0 ** _DRAW.uniform(-12, 20, 5000),
        [0.0, -0.0, np.nan, 0.145e-4, 2.0**52 + 1, 1e-4, 1e16],
    ]
)


def test_numbers_are_rounded_as_by_the_built_in() -> None:
    each = [round(one, 6) for one in NUMBERS.tolist()]
    assert repr(rounded(NUMBERS, 6).tolist()) == repr(each)
    assert repr(np.round(HALVES, 6).tolist()) != repr(each[: len(HALVES)])  # or this is no test


@pytest.mark.parametrize(
    "values",
    [
        NUMBERS[-5000:],
        rounded(NUMBERS[:24], 6).reshape(4, 6),
        NUMBERS[:24].reshape(4, 6).T,
        np.array([[1.5, np.nan], [np.nan, 1e-5]]),
        np.array([[np.nan]]),
        np.empty(0),
        np.empty((0, 3)),
        np.empty((3, 0)),
    ],
    ids=("small and large", "matrix", "transposed", "exponent", "unknown", *"abc"),
)
def test_a_row_of_an_array_takes_one_line(values: Numbers) -> None:
    text = indented_json({"a": [values]})
    assert text.replace("\n", "").replace(" ", "") == json.dumps({"a": [as_lists(values)]}).replace(
        " ", ""
    )
    rows = [values] if values.ndim == 1 else list(values)
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    assert all(json.dumps(as_lists(row)) in lines for row in rows)


def test_an_infinite_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        indented_json(np.array([1.0, np.inf]))
