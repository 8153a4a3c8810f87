"""Hugging Face's `imagefolder`: images and the table that describes them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import refusal
from support.program import check_refused, run_program

from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.discovery import find_inputs
from vlcpctl.data.sources.folders import Folder
from vlcpctl.data.sources.image_folders import split_of_directories
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image

KINDS = ("jsonl", "csv", "parquet")


def describe(directory: Path, rows: Sequence[Mapping[str, Any]], kind: str = "jsonl") -> Path:
    """Write `metadata.KIND` of these rows."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"metadata.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def image(path: Path, number: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make_image(number, 8))


def read(source: Path, **wanted: Any) -> list[Pair]:
    (found,) = find_inputs([str(source)])
    columns = ColumnOptions(**wanted)
    for file in found.files:
        file.check_columns(columns)
    return [pair for file in found.files for batch in file.pairs(columns) for pair in batch]


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_describes_images_beside_it_and_directories_are_splits(
    tmp_path: Path, kind: str
) -> None:
    for number, part in enumerate(("train", "validation", "test-1")):
        image(tmp_path / "data" / part / "deep" / "a.png", number)
        row = {"file_name": "deep/a.png", "text": f"caption {number}", "owner": f"o{number}"}
        describe(tmp_path / "data" / part, [row], kind)
    given = SplitOptions(
        sources=[str(tmp_path / "data")],
        by="all:one",
        split_column="split",
        keep_columns="owner",
    )
    make_stream(given, tmp_path / "out")
    (task,) = open_stream(tmp_path / "out")
    assert dict(task.counts) == {"train": 1, "val": 1, "test": 1}
    assert task.split("test").captions(0) == ["caption 2"]
    assert task.split("test").column("owner") == [["o2"]]
    assert task.split("val").image(0) == make_image(1, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_images_that_the_table_does_not_list_are_skipped_and_counted(
    tmp_path: Path, kind: str
) -> None:
    """Images of other columns are listed, and those of a directory with a table are that one's."""
    for name in ("a.png", "mask.png", "deep/b.png", "deep/c.gif", "own/d.png", "own/e.png"):
        image(tmp_path / "data" / name, len(name))
    row = {"file_name": "./a.png", "mask_file_name": "mask.png", "text": "c"}
    describe(tmp_path / "data", [row], kind)
    describe(tmp_path / "data" / "own", [{"file_name": "d.png", "text": "d"}], kind)
    found = read(tmp_path / "data")
    assert [(pair.place, pair.reason) for pair in found if pair.image is None] == [
        (name, "not in the metadata") for name in ("deep/b.png", "deep/c.gif", "e.png")
    ]
    given = SplitOptions(sources=[str(tmp_path / "data")], by="all:one", max_skip="3")
    make_stream(given, tmp_path / "out")
    assert read_stream(tmp_path / "out").skipped == {"not in the metadata": 3}
    with pytest.raises(TooManySkipped, match=rf"3 of 5 .*b\.png: metadata\.{kind} has no row for"):
        make_stream(replace(given, max_skip="2"), tmp_path / "other")


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train/metadata.csv", "train"),
        ("data/Training_2/metadata.csv", "train"),
        ("eval/train/metadata.csv", "test"),
        ("my-dev.set/metadata.csv", "val"),
        ("gallery/metadata.csv", "gallery"),
        ("train-test/metadata.csv", None),
        ("trains/metadata.csv", None),
        ("metadata.csv", None),
    ],
)
def test_a_split_is_a_word_of_a_directory(path: str, split: str | None) -> None:
    assert split_of_directories(Path(path)) == split


def test_a_column_of_splits_comes_before_directories(tmp_path: Path) -> None:
    image(tmp_path / "train" / "a.png")
    describe(tmp_path / "train", [{"file_name": "a.png", "text": "c", "split": "val"}])
    assert [pair.split for pair in read(tmp_path, split="split")] == ["val"]
    describe(tmp_path / "train", [{"file_name": "a.png", "text": "c"}])
    with pytest.raises(BadInput, match="unknown column 'split'"):
        read(tmp_path / "train", split="split")


def test_other_columns_of_file_names_are_found_or_chosen(tmp_path: Path) -> None:
    image(tmp_path / "a.png", 1)
    describe(tmp_path, [{"photo_file_name": "a.png", "text": "c"}])
    assert [pair.image for pair in read(tmp_path)] == [make_image(1, 8)]
    image(tmp_path / "b.png", 2)
    describe(tmp_path, [{"x_file_name": "a.png", "y_file_name": "b.png", "text": "c"}])
    with pytest.raises(BadInput, match="several columns of file names"):
        read(tmp_path)
    for name in ("y", "y_file_name"):
        assert [pair.image for pair in read(tmp_path, image=name)] == [make_image(2, 8)]
    with pytest.raises(BadInput, match="unknown column 'z'"):
        read(tmp_path, image="z")
    describe(tmp_path, [{"file_name": "a.png", "thumb_file_name": "b.png", "text": "c"}])
    for chosen in (None, "image", "file_name"):
        assert [pair.image for pair in read(tmp_path, image=chosen)] == [make_image(1, 8)]


def test_lists_of_file_names_are_refused(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    path = describe(tmp_path, [{"file_names": ["a.png"], "text": "c"}])
    assert "lists several images for each row" in str(refusal(lambda: read(tmp_path), path))


def test_tables_in_two_formats_are_refused(tmp_path: Path) -> None:
    for kind in KINDS[:2]:
        describe(tmp_path, [{"file_name": "a.png", "text": "c"}], kind)
    with pytest.raises(BadInput, match=r"contains both metadata\.csv and metadata\.jsonl"):
        read(tmp_path)


def test_without_a_table_of_file_names_a_folder_is_read_as_before(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("words")
    describe(tmp_path, [{"camera": "x"}], "csv")
    (found,) = find_inputs([str(tmp_path)])
    assert [type(file) for file in found.files] == [Folder]
    assert [pair.captions for pair in read(tmp_path)] == [["words"]]


def test_a_table_of_several_rows_for_an_image_gives_it_all_captions(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    describe(
        tmp_path,
        [{"file_name": "a.png", "captions": ["a", "b"]}, {"file_name": "a.png", "captions": "c"}],
    )
    assert [pair.captions for pair in read(tmp_path)] == [["a", "b", "c"]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_name_outside_the_directory_is_a_flaw(tmp_path: Path, kind: str) -> None:
    image(tmp_path / "secret.png")
    image(tmp_path / "in" / "sub" / "a.png")
    inside = ["sub/../sub/a.png", "./sub/a.png"]
    outside = ["../secret.png", "sub/../../secret.png", str(tmp_path / "secret.png"), ".."]
    rows = [{"file_name": name, "text": "c"} for name in [*inside, *outside]]
    describe(tmp_path / "in", rows, kind)
    pairs = read(tmp_path / "in")
    assert [pair.image is None for pair in pairs] == [False] * 2 + [True] * 4
    assert all("outside the directory of its metadata" in str(pair.flaw) for pair in pairs[2:])
    other = [{"file_name": name, "text": "c"} for name in ("http://x/y.png", "sub", "no.png")]
    describe(tmp_path / "in", other, kind)
    assert not any(pair.image for pair in read(tmp_path / "in"))


def test_links_are_followed_as_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    image(tmp_path / "blobs" / "1234")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "a.png").symlink_to("../blobs/1234")
    (tmp_path / "snapshot" / "b.png").symlink_to("b.png")
    rows = [{"file_name": name, "text": "c"} for name in ("a.png", "b.png")]
    table = describe(tmp_path / "snapshot", rows)
    table.rename(tmp_path / "blobs" / "5678")
    table.symlink_to("../blobs/5678")
    first, second = read(tmp_path / "snapshot")
    assert first.image == make_image(0, 8)
    assert "b.png" in str(second.flaw)


def test_image_paths_may_be_relative_to_a_root(tmp_path: Path) -> None:
    image(tmp_path / "images" / "a.png")
    describe(tmp_path / "in", [{"file_name": "a.png", "text": "c"}])
    assert read(tmp_path / "in", image_roots=(tmp_path / "images",))[0].image
    (tmp_path / "in" / "metadata.jsonl").write_text('{"file_name": "../x.png", "text": "c"}')
    assert "outside" in str(read(tmp_path / "in", image_roots=(tmp_path / "images",))[0].flaw)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_table_is_named_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    path = describe(tmp_path / "in", [{"file_name": "a.png", "text": "c"}], kind)
    path.write_bytes(b"\xff" * 100)
    words = ("split", tmp_path / "in", "-o", tmp_path / "stream", "--by", "source", "-q")
    check_refused(run_program(capfd, *words), "split", 3, path)
