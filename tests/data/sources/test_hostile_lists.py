"""JSON lists and text tables that nobody can have meant: an end, and one line naming the file."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import check_memory, mutated, refusal
from support.pair_files import read_pairs

from vlcpctl.data.sources.source import RECORD_LENGTH
from vlcpctl.testing.tiny_stream import make_image


def listed(path: Path, *records: object) -> Path:
    (path.parent / "a.png").write_bytes(make_image(0, 8))
    path.write_text(json.dumps(records))
    return path


def table(path: Path, *lines: str | bytes) -> Path:
    data = [line.encode() if isinstance(line, str) else line for line in lines]
    path.write_bytes(b"\n".join(data) + b"\n")
    return path


def test_half_a_surrogate_pair_in_a_path_is_a_flaw(tmp_path: Path) -> None:
    path = listed(tmp_path / "l.json", {"image": "\ud800.png", "caption": "c"})
    (pair,) = read_pairs(path)
    assert "is not a file path" in str(pair.flaw)
    str(pair.flaw).encode()


JSON_REFUSED = {
    "deep": ("[" * 100_000, "recursion depth"),
    "deep in a record": ('[{"a":' + "[" * 100_000, "recursion depth"),
    "deep object": ('{"x": {"y": {"z":' * 200, "Expecting value"),
    "an integer of 5000 digits": ('[{"a": ' + "1" * 5000 + "}]", "digits"),
    "a caption without an end": ('[{"caption": "' + "x" * 2**21, "control character"),
    "spaces": (" " * 10**6, "Expecting value"),
    "nothing": ("", "Expecting value"),
    "a number": ("1", "not a JSON list of pairs"),
}


@pytest.mark.parametrize("name", JSON_REFUSED)
def test_json_that_is_no_list_is_refused(tmp_path: Path, name: str) -> None:
    text, words = JSON_REFUSED[name]
    path = table(tmp_path / "l.json", text)
    assert words in str(refusal(lambda: read_pairs(path), path))


def test_a_json_list_above_a_tenth_of_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = listed(tmp_path / "l.json", {"image": "a.png", "caption": "c"})
    monkeypatch.setattr("vlcpctl.data.sources.lists.memory_limit", lambda: 10 * path.stat().st_size)
    assert len(read_pairs(path)) == 1
    monkeypatch.setattr("vlcpctl.data.sources.lists.memory_limit", lambda: path.stat().st_size)
    assert "JSON Lines" in str(refusal(lambda: read_pairs(path), path))
    lines = table(tmp_path / "l.jsonl", json.dumps({"image": "a.png", "caption": "c"}))
    assert len(read_pairs(lines)) == 1


def test_long_integers_nan_and_repeated_names_are_read(tmp_path: Path) -> None:
    listed(tmp_path / "l.json")
    long = "1" * 400
    text = f'[{{"image": "no.png", "image": "a.png", "caption": "c", "g": {long}}}'
    text += ', {"image": "b.png", "caption": "c", "g": NaN}]'
    first, second = read_pairs(table(tmp_path / "l.json", text), value="g")
    assert (first.value, second.value) == (long, None)
    assert first.image is not None


def test_many_captions_of_one_image_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("w") as file:
        file.write("image,caption\n")
        file.writelines(f"a.png,{number:05000d}\n" for number in range(15_000))
    check_memory(lambda: read_pairs(path), 30)


CSV_REFUSED = {
    "a hundred thousand columns": (",".join(f"c{n}" for n in range(100_000)), "the limit is 10000"),
    "a column twice": ("image,caption,x,x", "two columns named 'x'"),
    "no header": ("a.png,a cat", "no image column"),
    "latin-1": (b"image,caption\na.png,caf\xe9", "utf-8"),
    "utf-16": ("image,caption\na.png,b".encode("utf-16"), "not UTF-8"),
    "a quote without its partner": ('image,caption\na.png,"b\nb.png,c', "unexpected end"),
    "a quote in a gigabyte": (
        'image,caption\na.png,"' + ("x" * 999 + "\n") * (RECORD_LENGTH // 999),
        "does not end",
    ),
    "a quote in a row of many": ('image,caption\na.png,"b"c', "expected after"),
    "a line of megabytes": ("image,caption\na.png," + "x," * (RECORD_LENGTH // 2 + 9), "does not"),
    "a long name of a column": ("x" * 10**6 + ",y\na,b", "no image column"),
}


@pytest.mark.parametrize("name", CSV_REFUSED)
def test_a_table_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    text, words = CSV_REFUSED[name]
    path = table(tmp_path / "t.csv", text, "x")
    assert words in str(refusal(lambda: read_pairs(path), path))


def test_nul_bytes_mixed_ends_and_a_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(make_image(0, 8))
    data = b"\xef\xbb\xbfimage,caption\r\na.png,one\ra.png,t\0wo\na.png\0,three\r\n"
    (tmp_path / "t.csv").write_bytes(data)
    first, second = read_pairs(tmp_path / "t.csv")
    assert first.captions == ["one", "t\0wo"]
    assert "is not a file path" in str(second.flaw)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    where = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(where)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": _pipe,
    "socket": _socket,
    "directory": lambda path: path.mkdir(),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "loop of links": _loop,
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_an_image_that_is_no_file_is_a_flaw(tmp_path: Path, kind: str) -> None:
    path = listed(tmp_path / "l.json", {"image": "b.png", "caption": "c"})
    SPECIAL[kind](tmp_path / "b.png")
    (pair,) = read_pairs(path)
    assert "b.png" in str(pair.flaw)


@settings(max_examples=60)
@given(st.text(max_size=60), st.sampled_from(["csv", "json"]))
def test_any_text_ends_in_pairs_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    path.write_bytes(text.encode(errors="surrogatepass"))
    refusal(lambda: read_pairs(path), path)


def test_any_list_ends_in_pairs_or_one_line(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    sentences = [{"raw": "a cat"}, {"raw": "two"}]
    seeds = {
        "csv": ['image,caption,"g"\r\na.png,"a, ""cat""",1\nb.png,c,2\n'],
        "json": [
            json.dumps([{"image": "a.png", "caption": ["c", "d"], "g": 1.5e3}]),
            json.dumps({"images": [{"filename": "a.png", "sentences": sentences}]}),
            json.dumps({"toys": {"12": {"title": "t", "x": None}}}),
            json.dumps({"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "c"}]}),
        ],
    }
    for number in range(300):
        suffix = ("csv", "json")[number % 2]
        whole = seeds[suffix][number // 2 % len(seeds[suffix])]
        path = tmp_path / f"x.{suffix}"
        path.write_bytes(mutated(whole.encode(), draw))
        refusal(lambda: read_pairs(path), path)  # noqa: B023
