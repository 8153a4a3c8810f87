"""Directories of images: beside their texts, described by metadata, and what img2dataset leaves."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import refusal
from support.pair_files import img2dataset_members, read_pairs, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.data.sources import folders
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.folders import split_of_directories
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0, 8)


def fill(directory: Path, **files: bytes | str) -> Path:
    for name, data in files.items():
        path = directory / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return directory


def test_an_image_and_the_text_of_its_name_are_a_pair(tmp_path: Path) -> None:
    fill(tmp_path, a_png=IMAGE, a_txt="one\ntwo", sub__b_v2_PNG=IMAGE, sub__b_v2_txt="three")
    first, second = read_pairs(tmp_path)
    assert (first.source_key, first.captions, first.image) == ("a", ["one", "two"], IMAGE)
    assert (second.source_key, second.captions) == ("sub/b.v2", ["three"])
    fill(tmp_path, a_PNG=IMAGE)
    with pytest.raises(BadInput, match="two files for the same part of a sample"):
        read_pairs(tmp_path)


def test_what_cannot_be_a_pair_is_named_not_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, a_gif=b"GIF89a", a_txt="a", b_txt="alone", c_png=IMAGE, d_jpg=IMAGE, d_txt="d")
    (tmp_path / "link.png").symlink_to("nowhere")
    (tmp_path / "link.txt").write_text("x")
    pairs = {pair.place: pair for pair in read_pairs(tmp_path)}
    assert "not one of JPEG, PNG and WebP" in str(pairs["a"].flaw)
    assert "the sample has no image" in str(pairs["b"].flaw)
    assert pairs["c"].captions == []
    assert pairs["d"].flaw is None
    assert "No such file" in str(pairs["link"].flaw)


def test_what_is_no_sample_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, a_png=IMAGE, a_txt="a", stats_json="{}", notes_md="x", classes_cls="3")
    fill(tmp_path / ".hidden", b_png=IMAGE, b_txt="b")
    (tmp_path / ".DS_Store").write_text("x")
    assert [pair.source_key for pair in read_pairs(tmp_path)] == ["a"]


def test_a_name_that_is_no_text_can_still_be_read(tmp_path: Path) -> None:
    for ending, data in ((b".png", IMAGE[:4]), (b".txt", b"words")):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + ending)).write_bytes(data)
    (pair,) = read_pairs(tmp_path)
    assert (pair.source_key, pair.captions) == ("\ufffd", ["words"])


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = fill(tmp_path / "d", a_png=IMAGE, a_txt="a caption")

    def walk(top: object, onerror: Callable[[OSError], None]) -> object:
        onerror(PermissionError(13, "Permission denied", str(top)))
        return iter(())

    monkeypatch.setattr(folders.os, "walk", walk)
    said = refusal(lambda: list(folders.walk(directory)), directory)
    assert "Permission denied" in str(said)


# -- img2dataset


def failed(number: int, **described: object) -> dict[str, bytes]:
    """The description and caption of an image that img2dataset could not download."""
    whole = {"status": "failed_to_download", "error_message": "HTTP Error 404", **described}
    return {f"{number:09d}.json": json.dumps(whole).encode(), f"{number:09d}.txt": b"caption"}


@pytest.mark.parametrize("kind", ["tar", "files", "parquet"])
def test_failed_downloads_are_counted_but_are_no_errors(tmp_path: Path, kind: str) -> None:
    """Those that it lists, and those of which only its statistics know."""
    source, place = tmp_path / "in", tmp_path / "in/00000"
    members = img2dataset_members(2) | failed(7) | failed(8, error_message=None) | failed(9)
    members["000000009.jpg"] = b""  # some writers leave an empty file
    if kind == "tar":
        write_tar(place.with_suffix(".tar"), members)
    elif kind == "files":
        place.mkdir(parents=True)
        for name, data in members.items():
            (place / name).write_bytes(data)
    else:
        good = {"jpg": IMAGE, "caption": "c", "status": "success", "error_message": None}
        bad = {**good, "jpg": None, "status": "failed_to_resize", "error_message": "too small"}
        write_parquet(place.with_suffix(".parquet"), [good, bad, bad, bad])
    flaws = {pair.flaw for pair in read_pairs(source) if pair.reason == "failed download"}
    assert flaws == {
        "parquet": {"failed_to_resize: too small"},
    }.get(kind, {"failed_to_download: HTTP Error 404", "failed_to_download"})
    numbers = {"count": 3, "successes": 1, "failed_to_download": 2}
    (source / "00000_stats.json").write_text(json.dumps(numbers))
    given = SplitOptions(sources=[str(source)], by="source", holdout="none", max_skip="0")
    manifest = make_stream(given, tmp_path / "stream")
    more = 0 if kind == "parquet" else 2  # a table lists them all
    assert manifest["skipped"] == {"failed download": 3 + more}
    assert manifest["read"] == (4 if kind == "parquet" else 5) + more


def test_failed_downloads_do_not_excuse_other_errors(tmp_path: Path) -> None:
    members = img2dataset_members(2) | failed(7) | {"000000008.txt": b"alone"}
    # A status is img2dataset's only beside its error message.
    members["000000009.json"] = json.dumps({"status": "failed", "caption": "c"}).encode()
    write_tar(tmp_path / "in.tar", members)
    given = SplitOptions(sources=[str(tmp_path / "in.tar")], by="source", max_skip="1")
    with pytest.raises(TooManySkipped, match=r"2 of 5 samples .*\(no image 2\).*000000008"):
        make_stream(given, tmp_path / "stream")


# -- Hugging Face's `imagefolder`

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


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_describes_images_beside_it_and_directories_are_splits(
    tmp_path: Path, kind: str
) -> None:
    for number, part in enumerate(("test-1", "train", "validation")):
        image(tmp_path / part / "deep" / "a.png", number)
        row = {"file_name": "deep/a.png", "text": f"caption {number}", "owner": f"o{number}"}
        describe(tmp_path / part, [row], kind)
    pairs = read_pairs(tmp_path, split="split", keep=("owner",))
    assert [pair.split for pair in pairs] == ["test", "train", "val"]
    assert [pair.captions for pair in pairs] == [[f"caption {number}"] for number in range(3)]
    assert [pair.kept for pair in pairs] == [((f"o{number}",),) for number in range(3)]
    assert [pair.image for pair in pairs] == [make_image(number, 8) for number in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_images_that_the_table_does_not_list_are_flaws(tmp_path: Path, kind: str) -> None:
    """Images of other columns are listed, and those of a directory with a table are that one's."""
    for name in ("a.png", "mask.png", "deep/b.png", "deep/c.gif", "own/d.png", "own/e.png"):
        image(tmp_path / name, len(name))
    row = {"file_name": "./a.png", "mask_file_name": "mask.png", "text": "c"}
    describe(tmp_path, [row], kind)
    describe(tmp_path / "own", [{"file_name": "d.png", "text": "d"}], kind)
    found = [(pair.place, pair.reason) for pair in read_pairs(tmp_path) if pair.image is None]
    names = ("deep/b.png", "deep/c.gif", "e.png")
    assert found == [(name, "not in the metadata") for name in names]


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/Training_2/metadata.csv", "train"),
        ("eval/train/metadata.csv", "test"),
        ("my-dev.set/metadata.csv", "val"),
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
    assert [pair.split for pair in read_pairs(tmp_path, split="split")] == ["val"]


def test_other_columns_of_file_names_are_found_or_chosen(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        image(tmp_path / f"{name}.png", number)
    found = dict.fromkeys((None, "image", "file_name"), 0)
    for columns, chosen in (
        (("photo_file_name",), {None: 0}),
        (("x_file_name", "y_file_name"), {"y": 1, "y_file_name": 1}),
        (("file_name", "thumb_file_name"), found),
    ):
        names = dict(zip(columns, ("a.png", "b.png"), strict=False))
        describe(tmp_path, [{**names, "text": "c"}])
        for name, number in chosen.items():
            assert read_pairs(tmp_path, image=name)[0].image == make_image(number, 8)
    for row in ({"file_names": ["a.png"]}, {"x_file_name": "a.png", "y_file_name": "b.png"}):
        path = describe(tmp_path, [{**row, "text": "c"}])
        assert refusal(lambda: read_pairs(tmp_path), path)
    describe(tmp_path, [{"file_name": "a.png", "text": "c"}], "csv")
    with pytest.raises(BadInput, match=r"contains both metadata\.csv and metadata\.jsonl"):
        read_pairs(tmp_path)


def test_without_a_table_of_file_names_a_folder_is_read_as_before(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("words")
    describe(tmp_path, [{"camera": "x"}], "csv")
    (found,) = find_inputs([str(tmp_path)])
    assert [file.kind for file in found.files] == ["samples"]
    assert [pair.captions for pair in read_pairs(tmp_path)] == [["words"]]


def test_a_file_name_outside_the_directory_is_a_flaw(tmp_path: Path) -> None:
    image(tmp_path / "secret.png")
    image(tmp_path / "in" / "sub" / "a.png")
    inside = ["sub/../sub/a.png", "./sub/a.png"]
    outside = ["../secret.png", "sub/../../secret.png", str(tmp_path / "secret.png"), ".."]
    no_file = ["http://x/y.png", "sub", "no.png"]
    rows = [{"file_name": name, "text": "c"} for name in [*inside, *outside, *no_file]]
    describe(tmp_path / "in", rows)
    pairs = read_pairs(tmp_path / "in")
    assert [pair.image is None for pair in pairs] == [False] * 2 + [True] * 7
    assert all("outside the directory of its metadata" in str(pair.flaw) for pair in pairs[2:6])


def test_links_are_followed_as_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    image(tmp_path / "blobs" / "1234")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "a.png").symlink_to("../blobs/1234")
    (tmp_path / "snapshot" / "b.png").symlink_to("b.png")
    rows = [{"file_name": name, "text": "c"} for name in ("a.png", "b.png")]
    table = describe(tmp_path / "snapshot", rows)
    table.rename(tmp_path / "blobs" / "5678")
    table.symlink_to("../blobs/5678")
    first, second = read_pairs(tmp_path / "snapshot")
    assert first.image == make_image(0, 8)
    assert "b.png" in str(second.flaw)
