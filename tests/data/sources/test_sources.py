"""Sources in foreign formats: what is read from them, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pair_files import img2dataset_members, read_pairs, rows, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.images.header import BrokenImage, read_header
from vlcpctl.data.sources.find import distinct_names, find_inputs
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0)


def read_tar(path: Path, members: dict[str, bytes], **wanted: str) -> list[Pair]:
    return read_pairs(write_tar(path / "x.tar", members), **wanted)


def test_a_hugging_face_struct_gives_its_bytes_or_its_path(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(IMAGE)
    images = [{"bytes": IMAGE, "path": "a.png"}, {"bytes": None, "path": "b.png"}, None]
    table = pa.table({"image": images, "text": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "p.parquet")
    pairs = read_pairs(tmp_path / "p.parquet")
    assert [pair.image and bytes(pair.image) for pair in pairs] == [IMAGE, IMAGE, None]
    assert pairs[2].flaw


def test_paths_are_looked_up_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(IMAGE)
    os.mkfifo(tmp_path / "pipe")
    names = ["images/a.png", "missing.png", "pipe", "pipe:touch owned", "http://x/y.png", "images"]
    path = write_parquet(
        tmp_path / "p.parquet", [{"filepath": name, "title": "t"} for name in names]
    )
    pairs = read_pairs(path)
    assert pairs[0].image == IMAGE
    assert [pair.image for pair in pairs[1:]] == [None] * 5
    assert "missing.png" in str(pairs[1].flaw)
    assert "regular" in str(pairs[2].flaw)


def test_nulls_are_named_not_shifted(tmp_path: Path) -> None:
    pairs = [
        {**row, "image": None if place == 1 else row["image"]} for place, row in enumerate(rows(4))
    ]
    found = read_pairs(write_parquet(tmp_path / "p.parquet", pairs))
    assert [pair.flaw for pair in found] == [None, "neither image bytes nor a path", None, None]
    assert bytes(found[3].image or b"") == rows(4)[3]["image"]


def test_categories_and_numbers_become_text(tmp_path: Path) -> None:
    table = pa.table(
        {
            "image": [IMAGE, IMAGE],
            "caption": pa.array(["a", "b"]).dictionary_encode(),
            "label": [3, None],
            "when": pa.array([0, 86_400], pa.timestamp("s")),
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    pairs = read_pairs(tmp_path / "p.parquet", value="when")
    assert [pair.captions for pair in pairs] == [["a"], ["b"]]
    assert [pair.label for pair in pairs] == ["3", None]
    assert [pair.value for pair in pairs] == ["1970-01-01 00:00:00.000", "1970-01-02 00:00:00.000"]


@pytest.mark.parametrize("name", ["x.tar", "x.parquet", "x.csv"])
def test_a_source_without_pairs_is_named(tmp_path: Path, name: str) -> None:
    write_tar(tmp_path / "x.tar", {})
    write_parquet(tmp_path / "some.parquet", rows(1))
    pq.write_table(pq.read_table(tmp_path / "some.parquet")[:0], tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("image,caption\n")
    given = SplitOptions(sources=[str(tmp_path / name)], by="all:week")
    with pytest.raises(BadInput, match=rf"x\.{name[2:]}"):
        make_stream(given, tmp_path / "out")


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
    described = {"captions": ["x", "y"], "week": 7, "category": "cat"}
    members = {
        "a.png": IMAGE,
        "a.json": json.dumps(described).encode(),
        "a.txt": b"one\ntwo",
        "b.png": IMAGE,
        "b.cls": b"3\n",
    }
    pairs = read_tar(tmp_path, members, value="week")
    assert [pair.label for pair in pairs] == ["cat", "3"]
    assert [pair.value for pair in pairs] == [7, None]
    assert pairs[0].captions == ["x", "y"]
    assert read_tar(tmp_path, members, caption="txt")[0].captions == ["one", "two"]


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


@pytest.mark.parametrize("source", ["pipe:touch owned", "s3://bucket/x.tar", "a.tar::b.tar"])
def test_what_is_not_a_path_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="not a path"):
        find_inputs([source])


def test_globs_are_expanded_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_tar(tmp_path / f"{name}.tar", img2dataset_members(1))
    (found,) = find_inputs([str(tmp_path / "*.tar")])
    assert [file.path.name for file in found.files] == ["a.tar", "b.tar"]


def test_a_source_given_twice_is_refused(tmp_path: Path) -> None:
    path = str(write_tar(tmp_path / "a.tar", img2dataset_members(1)))
    with pytest.raises(UsageError, match="given twice"):
        find_inputs([path, path])


def test_names_need_no_more_of_the_path_than_tells_them_apart() -> None:
    assert distinct_names(["/x/a.tar", "/y/b.tar"]) == ["a", "b"]
    assert distinct_names(["/x/1/a.tar", "/x/2/a.tar"]) == ["1/a", "2/a"]


def test_hidden_directories_are_not_sources(tmp_path: Path) -> None:
    """Such as an output that `--force` replaced, kept beside the output in the same directory."""
    write_parquet(tmp_path / "pairs.parquet", rows(2))
    write_parquet(tmp_path / ".old.vlcpctl" / "replaced" / "old" / "pairs.parquet", rows(2))
    (found,) = find_inputs([str(tmp_path)])
    assert [file.path for file in found.files] == [tmp_path / "pairs.parquet"]


def test_lists_of_splits_are_found_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/train.json").write_text("[]")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/json").symlink_to(tmp_path / "lists")
    (source,) = find_inputs([str(tmp_path / "data")])
    assert [file.path for file in source.files] == [tmp_path / "data/json/train.json"]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "jsonl", "tar", "arrow"])
def test_a_pointer_of_git_lfs_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pairs.{suffix}"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    path.write_bytes(pointer)
    with pytest.raises(BadInput, match="git lfs pull"):
        find_inputs([str(path)])
    with pytest.raises(BrokenImage, match="git lfs pull"):
        read_header(pointer)
