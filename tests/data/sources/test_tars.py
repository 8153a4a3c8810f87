"""Tars of samples as webdataset and img2dataset write them: which members are one pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pair_files import read_pairs, write_tar

from vlcpctl.data.tasks.samples import Pair
from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0)


def read_tar(path: Path, members: dict[str, bytes], **wanted: object) -> list[Pair]:
    return read_pairs(write_tar(path / "x.tar", members), **wanted)


def test_lines_of_a_text_are_captions_unless_the_description_says_one(tmp_path: Path) -> None:
    members = {"a.png": IMAGE, "a.txt": b"one\ntwo", "b.png": IMAGE, "b.txt": b"one\ntwo"}
    members["b.json"] = json.dumps({"caption": "one\ntwo"}).encode()
    pairs = read_tar(tmp_path, members)
    assert [pair.captions for pair in pairs] == [["one", "two"], ["one\ntwo"]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("9.5.0.png 9.5.0.txt", {"9.5.0.png": "first dot"}),
        ("9.5.0.png 9.5.1.PNG", {"9.5.0.png": "first dot", "9.5.1.PNG": "first dot"}),
        ("s1.input.jpg s1.input.txt", {"s1.input.jpg": "first dot"}),
        ("s1.input.jpg s1.target.jpg s1.txt", {"s1": "s1.input.jpg"}),
        ("b.bmp b.txt", {"b": "b.bmp is not one of"}),
        ("d/b.tiff", {"d/b.tiff": "not one of"}),
        ("b.HEIC b.cls", {"b": "b.HEIC"}),
        ("b.png b.seg.png b.bmp b.txt", {"b": ""}),
        ("c.npy c.seg.npy classes.txt.gz", {}),
        ("._a.png ._a.txt", {}),
        ("__MACOSX/._a.png __MACOSX/d/b.png d/.DS_Store", {}),
        ("./b.png ./._b.txt ./b.txt", {"./b": ""}),
        ("../b.png ../b.txt", {"../b": ""}),
    ],
)
def test_images_that_form_no_sample_are_named_and_hidden_members_left_out(
    tmp_path: Path, names: str, expected: dict[str, str]
) -> None:
    members = {
        name: b"words" if "txt" in name else IMAGE for name in f"a.png a.txt {names}".split()
    }
    found = {one.place: str(one.flaw or "") for one in read_tar(tmp_path / "x.tar", members)}
    assert found.pop("a") == ""
    assert found.keys() == expected.keys()
    for place, words in expected.items():
        assert words in found[place]
        assert bool(words) == bool(found[place])


def test_classes_and_columns_come_from_the_members(tmp_path: Path) -> None:
    described = {"captions": ["x", "y"], "week": 7, "category": "cat", "odd": {}}
    members = {
        "a.png": IMAGE,
        "a.json": json.dumps(described).encode(),
        "a.txt": b"one\ntwo",
        "b.png": IMAGE,
        "b.cls": b"3\n",
    }
    pairs = read_tar(tmp_path, members, value="week", keep=("week",))
    assert [pair.label for pair in pairs] == ["cat", "3"]
    assert [pair.value for pair in pairs] == [7, None]
    assert [pair.kept for pair in pairs] == [(("7",),), ((),)]
    assert pairs[0].captions == ["x", "y"]
    assert read_tar(tmp_path, members, caption="txt")[0].captions == ["one", "two"]
    assert "'odd' is an object" in str(read_tar(tmp_path, members, keep=("odd",))[0].flaw)


def test_tars_that_were_joined_are_read_to_their_end(tmp_path: Path) -> None:
    """As by `tar --ignore-zeros`; samples of the same name in two of them are two samples."""
    paths = [
        write_tar(tmp_path / f"{name}.tar", {"a.png": make_image(number), "a.txt": name.encode()})
        for number, name in enumerate("xy")
    ]
    joined = tmp_path / "joined.tar"
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    found = read_pairs(joined)
    assert [pair.captions for pair in found] == [["x"], ["y"]]
    assert [pair.image for pair in found] == [make_image(0), make_image(1)]
