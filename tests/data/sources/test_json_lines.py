"""JSON Lines: what is read, and what nobody can have meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pair_files import read_pairs

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image


def write(path: Path, *lines: object) -> Path:
    """A file of these lines; values other than bytes are written as JSON."""
    data = [
        line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode()
        for line in lines
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(data) + b"\n")
    for number in range(4):
        (path.parent / f"{number}.png").write_bytes(make_image(number, 8))
    return path


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.ndjson"])
def test_each_line_is_a_pair_and_rows_of_one_image_are_its_captions(
    tmp_path: Path, name: str
) -> None:
    path = write(
        tmp_path / name,
        {"image": "0.png", "caption": ["one", "two"], "week": 10},
        {"image": "1.png", "caption": "three", "week": 9},
        {"image": "1.png", "caption": "four", "week": 9},
    )
    found = read_pairs(path, value="week")
    assert [pair.captions for pair in found] == [["one", "two"], ["three", "four"]]
    assert [pair.value for pair in found] == [10, 9]
    assert [pair.image for pair in found] == [make_image(0, 8), make_image(1, 8)]


def test_a_mark_blank_lines_and_other_line_ends_are_read(tmp_path: Path) -> None:
    one, two = (json.dumps({"image": f"{n}.png", "text": "c"}).encode() for n in range(2))
    path = write(tmp_path / "l.jsonl", b"\xef\xbb\xbf" + one + b"\r", b"", b"  \r", two + b"\r")
    assert [pair.place for pair in read_pairs(path)] == [0, 1]
    assert not any(pair.flaw for pair in read_pairs(path))
    path.write_bytes(path.read_bytes().rstrip())  # without a line end at the end
    assert len(read_pairs(path)) == 2


def test_a_column_that_the_first_line_leaves_out_is_found(tmp_path: Path) -> None:
    path = write(
        tmp_path / "l.jsonl",
        {"image": "0.png", "caption": "a"},
        {"image": "1.png", "caption": "b", "label": "cat", "week": 3},
    )
    assert [(pair.label, pair.value) for pair in read_pairs(path, value="week")] == [
        (None, None),
        ("cat", 3),
    ]


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"image": "3.png", "capt', "line 2: character 19: Unterminated string"),
    "not an object": (b'["3.png", "caption"]', "line 2: expected a record in braces"),
    "not UTF-8": (b'{"image": "3.png", "caption": "caf\xe9"}', "line 2: it is not UTF-8"),
    "a million brackets": (b'{"a":' + b"[" * 10**6, "line 2: maximum recursion depth"),
    "an integer of 5000 digits": (
        b'{"a": ' + b"1" * 5000 + b"}",
        "line 2: Exceeds the limit (4300 digits)",
    ),
    "half a surrogate pair": (rb'{"image": "3.png", "caption": "\ud800"}', "lone surrogate"),
    "a name of ours": (b'{".flaw": 5, "image": "no.png", "caption": "c"}', "no.png"),
    "two objects": (b"{} {}", "line 2: character 3: Extra data"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_skipped_with_its_number_and_the_rest_is_read(
    tmp_path: Path, name: str
) -> None:
    line, words = BAD_LINES[name]
    pairs = read_pairs(
        write(
            tmp_path / "l.jsonl",
            {"image": "0.png", "caption": "a"},
            line,
            {"image": "2.png", "caption": "c"},
        )
    )
    assert [pair.image is None for pair in pairs] == [False, True, False]
    assert words in str(pairs[1].flaw)


def test_lists_of_splits_in_a_directory_are_a_source(tmp_path: Path) -> None:
    for number, name in enumerate(("validation", "train", "test", "notes")):
        write(tmp_path / f"{name}.jsonl", {"image": f"{number}.png", "caption": name})
    given = SplitOptions(sources=[str(tmp_path)], by="source", split_column="split")
    make_stream(given, tmp_path / "stream")
    (task,) = open_stream(tmp_path / "stream")
    assert dict(task.counts) == {"train": 1, "val": 1, "test": 1}
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(BadInput, match=r"contains both train\.json and test\.jsonl"):
        find_inputs([str(tmp_path)])
