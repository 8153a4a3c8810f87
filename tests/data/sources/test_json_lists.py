"""JSON read in pieces gives the same values as JSON read whole; errors give the position."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources import json_lists
from vlcpctl.data.sources.json_lists import JsonReader, json_records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def reader_of(text: str) -> JsonReader:
    return JsonReader(Path("x.json"), io.StringIO(text))


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_a_value_in_pieces_is_the_value(value: object, indent: int | None, plain: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lists, "_PIECE", 3)
        reader = reader_of(json.dumps(value, indent=indent, ensure_ascii=plain) + " \n")
        assert reader.value() == value
        reader.end()


@given(st.dictionaries(st.text(), st.lists(VALUES, max_size=3), max_size=3))
def test_walking_through_finds_every_element(value: dict[str, list[object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lists, "_PIECE", 5)
        reader = reader_of(json.dumps(value))
        walked = {name: [reader.value() for _ in reader.elements()] for name in reader.members()}
        assert walked == value
        reader.end()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_list(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(60_000):
            record = {"image": f"{number}.jpg", "caption": "a word " * 60}
            file.write(("," if number else "") + json.dumps(record))
        file.write("]")
    tracemalloc.start()
    count = sum(1 for _ in json_records(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 60_000
    assert path.stat().st_size > 27e6
    assert peak < 8e6


BROKEN = {
    "": "not a JSON list",
    '"text"': "not a JSON list",
    "[1, 2]": "record in braces",
    '[{"image": "a.png", "caption": "c"}': "expected ',', found 'the end of the file'",
    '[{"image": "a.png", "capt': "Unterminated string",
    '[{"image": "a.png"}] []': "unexpected text after the end",
    '[{"image": }]': "Expecting value",
    '{"a": 1}': "'a' is neither a pair nor a task",
    '{"a": {"b": {}, "c": 1}}': "record in braces",
    "{1: 2}": "expected a name in quotes",
    '{"images": {}}': r"expected '\['",
    '{"images": [{"id": 1, "file_name": "x"}]}': "images without captions",
    '[{"n": ' + "9" * 5000 + "}]": "digits",
    "[" + '{"a":' * 100_000 + "}]": "recursion depth",
}


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_is_bad_input_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=BROKEN[text]) as caught:
        list(json_records(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"image": "a.png", "caption": "\xff"}]')
    with pytest.raises(BadInput, match="not UTF-8"):
        list(json_records(path))


def test_a_value_without_an_end_is_not_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lists, "_PIECE", 10)
    monkeypatch.setattr(json_lists, "RECORD_LENGTH", 100)
    path = tmp_path / "list.json"
    path.write_text('[{"image": "' + "a" * 10_000)
    with pytest.raises(BadInput, match="does not end"):
        list(json_records(path))
