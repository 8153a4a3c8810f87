"""JSON of unknown origin ends in a value or in one error, whatever the bytes."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput
from vlcpctl.core.safe_json import parse_json, read_json, read_json_object

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES, st.booleans())
def test_what_json_dumps_writes_reads_back(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text) == value
    assert parse_json(text.encode()) == value


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_value_or_a_value_error(data):
    with suppress(ValueError):
        json.dumps(parse_json(data), ensure_ascii=False).encode()


@pytest.mark.parametrize("depth", [101, 900, 5000, 200_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_nesting_is_refused(depth, pair):
    opening = "[" if pair == "[]" else '{"a":'
    text = opening * depth + "1" + pair[1] * depth
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        parse_json(text)


def test_nesting_at_the_bound_is_read():
    assert parse_json("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        ("1" * 400, "64 bits"),
        ("1" * 5000, "64 bits"),
        (str(2**63), "64 bits"),
        (str(-(2**63) - 1), "64 bits"),
    ],
)
def test_what_cannot_be_written_again_is_refused(text, phrase):
    with pytest.raises(ValueError, match=phrase):
        parse_json(text)


def test_a_whole_surrogate_pair_is_a_character():
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_integers_of_64_bits_are_read():
    assert parse_json(f"[{-(2**63)}, {2**63 - 1}]") == [-(2**63), 2**63 - 1]


@pytest.mark.parametrize("word", ["1e999", "-1E+0400", "1" * 310 + ".5"])
def test_only_finite_refuses_numbers_that_are_infinite_as_floats(word):
    assert abs(parse_json(f"[{word}]")[0]) == float("inf")
    with pytest.raises(ValueError, match="too large"):
        parse_json(f"[{word}]", finite=True)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_only_finite_refuses_words_for_numbers(word):
    parse_json(f"[{word}]")
    with pytest.raises(ValueError, match="is not a JSON number"):
        parse_json(f"[{word}]", finite=True)


@pytest.mark.parametrize(
    ("make", "phrase"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b"{\xff}"), "not readable JSON"),
        (lambda path: path.write_bytes(b"[" * 99999), "nested"),
        (lambda path: path.write_bytes(b" " * 200_000), "over 100000"),
        (lambda path: path.write_bytes(b"[]"), "not a JSON object"),
    ],
)
def test_a_file_that_is_not_an_object_is_named(tmp_path, make, phrase):
    path = tmp_path / "x.json"
    make(path)
    with pytest.raises(BadInput, match=phrase) as caught:
        read_json_object(path, most_bytes=100_000)
    assert str(path) in str(caught.value)


def test_a_file_reads_as_its_value(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    assert read_json(tmp_path / "x.json") == [1]
