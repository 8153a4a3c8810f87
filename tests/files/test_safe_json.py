"""JSON of unknown origin ends in a value or in one error, whatever the bytes."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput
from vlcpctl.files.safe_json import parse_json, read_json, read_json_object

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


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000])
def test_deep_nesting_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}'])
def test_half_of_a_surrogate_pair_is_refused(text):
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        parse_json(text)


def test_a_whole_surrogate_pair_is_a_character():
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


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
