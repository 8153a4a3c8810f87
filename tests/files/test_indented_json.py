"""Indented JSON has the bytes of `json.dumps(indent=1)`, apart from lists of numbers."""

from __future__ import annotations

import json
import math

import pytest

from vlcpctl.core.number_lists import indented_json

VALUES = [
    None,
    "a\nb\u00e9\u2028",
    1e22,
    [],
    {},
    [[]],
    [{}],
    [1, -0.0, 0.1, None, True, "x, y\n"],
    {"b": {"c": ("1", ["2"])}, "\u00e9": [], "d": {}},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_bytes_are_those_of_json(value: object) -> None:
    assert indented_json(value) == json.dumps(value, indent=1, ensure_ascii=False)


def test_a_list_of_numbers_takes_one_line() -> None:
    value = {"a": [[1.5, None], [2.5, 3e-7]], "b": (1, [2, -0.0]), "c": [1, "2"]}
    text = indented_json(value)
    assert json.loads(text) == json.loads(json.dumps(value))
    assert [line.strip() for line in text.splitlines()][2:4] == ["[1.5, null],", "[2.5, 3e-07]"]
    assert "[2, -0.0]\n" in text


def test_a_number_that_is_not_finite_is_refused() -> None:
    for value in ([math.nan], [[1.0], math.inf], math.nan):
        with pytest.raises(ValueError, match="not JSON compliant"):
            indented_json(value)
