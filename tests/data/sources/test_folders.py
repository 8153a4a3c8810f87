"""A directory of images beside their texts, of links and pipes, and what img2dataset leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import refusal
from support.pair_files import img2dataset_members, read_pairs, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.data.sources import folders
from vlcpctl.data.sources.find import find_inputs
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


def test_one_sample_twice_is_bad_input(tmp_path: Path) -> None:
    fill(tmp_path, a_png=IMAGE, a_PNG=IMAGE)
    with pytest.raises(BadInput, match="two files for the same part of a sample"):
        read_pairs(tmp_path)


def test_a_name_that_is_no_text_can_still_be_read(tmp_path: Path) -> None:
    for ending in (b".png", b".txt"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + ending)).write_bytes(IMAGE[:4])
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_bytes(b"words")
    (pair,) = read_pairs(tmp_path)
    assert (pair.source_key, pair.captions) == ("\ufffd", ["words"])


def test_an_empty_directory_says_what_is_missing(tmp_path: Path) -> None:
    fill(tmp_path, a_txt="a")
    with pytest.raises(BadInput, match="contains no Parquet file, tar"):
        find_inputs([str(tmp_path)])


def files_of_img2dataset(directory: Path, shard: str) -> None:
    for name, data in img2dataset_members(3, int(shard) * 10_000).items():
        path = directory / shard / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (directory / f"{shard}_stats.json").write_text("{}")
    write_parquet(directory / f"{shard}.parquet", [{"url": "x", "key": "1"}])


def test_img2dataset_as_files(tmp_path: Path) -> None:
    for shard in ("00000", "00001"):
        files_of_img2dataset(tmp_path, shard)
    fill(tmp_path / "_tmp", x_png=IMAGE, x_txt="x")
    pairs = read_pairs(tmp_path)
    assert len(pairs) == 6
    assert pairs[4].captions == ["caption 10001"]


@pytest.mark.parametrize("kind", ["tar", "files", "parquet"])
def test_a_shard_that_img2dataset_has_not_finished_is_bad_input(tmp_path: Path, kind: str) -> None:
    for shard in ("00000", "00001"):
        if kind == "files":
            files_of_img2dataset(tmp_path, shard)
        elif kind == "tar":
            write_tar(tmp_path / f"{shard}.tar", img2dataset_members(2))
        else:
            write_parquet(tmp_path / f"{shard}.parquet", [{"jpg": IMAGE, "caption": "c"}])
        (tmp_path / f"{shard}_stats.json").write_text("{}")
    find_inputs([str(tmp_path)])
    (tmp_path / "00001_stats.json").unlink()
    with pytest.raises(BadInput, match="img2dataset has not finished it"):
        find_inputs([str(tmp_path)])


def test_img2dataset_as_parquet_leaves_out_what_was_not_downloaded(tmp_path: Path) -> None:
    table = pa.table(
        {
            "key": ["0", "1", "2"],
            "caption": ["a", "b", "c"],
            "status": ["success", "failed_to_download", "success"],
            "error_message": [None, "404", None],
            "jpg": [IMAGE, None, IMAGE],
        }
    )
    pq.write_table(table, tmp_path / "00000.parquet")
    pairs = read_pairs(tmp_path / "00000.parquet")
    assert [pair.flaw for pair in pairs] == [None, "failed_to_download: 404", None]
    assert [(pair.image, pair.reason) for pair in pairs][1] == (None, "failed download")


TABLES = {
    "pairs.csv": "image,caption\na.png,one\nd/b.png,two\n",
    "any name.tsv": "filepath\ttitle\na.png\tone\nd/b.png\ttwo\n",
    "x.jsonl": '{"image": "a.png", "text": "one"}\n{"image": "d/b.png", "text": "two"}\n',
    "captions.txt": "image,caption\na.png,one\nd/b.png,two\n",
    "list.json": '[{"image": "a.png", "caption": "one"}, {"image": "d/b.png", "caption": "two"}]',
    "metadata.csv": "image,caption\na.png,one\nd/b.png,two\n",
    "d/below.csv": "image,caption\n../a.png,one\nb.png,two\n",
}


@pytest.mark.parametrize("name", [*TABLES, "pairs.parquet"])
def test_of_a_folder_whose_images_have_no_texts_the_table_is_read(
    tmp_path: Path, name: str
) -> None:
    for image in ("a.png", "d/b.png"):
        (tmp_path / image).parent.mkdir(exist_ok=True)
        (tmp_path / image).write_bytes(IMAGE)
    (tmp_path / "README.txt").write_text("about these images, and others")
    (tmp_path / "settings.json").write_text('{"size": 3}')
    if name in TABLES:
        (tmp_path / name).write_text(TABLES[name])
    else:
        rows = [{"image": "a.png", "caption": "one"}, {"image": "d/b.png", "caption": "two"}]
        write_parquet(tmp_path / name, rows)
    assert [(one.captions, one.image) for one in read_pairs(tmp_path)] == [
        (["one"], IMAGE),
        (["two"], IMAGE),
    ]
    if not name.endswith("parquet"):
        (tmp_path / "more.csv").write_text(TABLES["pairs.csv"])
        with pytest.raises(BadInput, match=rf"contains both .*{name.rpartition('/')[2]}"):
            read_pairs(tmp_path)
    (tmp_path / "a.txt").write_text("words")
    if not name.endswith("parquet"):
        assert {one.source_key: one.captions for one in read_pairs(tmp_path)}["a"] == ["words"]


def test_a_folder_of_images_that_are_not_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.HEIC").write_bytes(b"x")
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(BadInput, match=r"JPEG, PNG or WebP.*convert"):
        read_pairs(tmp_path)
    (tmp_path / "3.png").write_bytes(IMAGE)
    assert ["HEIC" in str(one.flaw) for one in read_pairs(tmp_path)] == [False, True]


def failed(number: int, **described: object) -> dict[str, bytes]:
    """The description and caption of an image that img2dataset could not download."""
    whole = {"status": "failed_to_download", "error_message": "HTTP Error 404", **described}
    return {f"{number:09d}.json": json.dumps(whole).encode(), f"{number:09d}.txt": b"caption"}


@pytest.mark.parametrize("kind", ["tar", "files"])
def test_failed_downloads_are_counted_but_are_no_errors(tmp_path: Path, kind: str) -> None:
    members = img2dataset_members(2) | failed(7) | failed(8, error_message=None) | failed(9)
    members["000000009.jpg"] = b""  # some writers leave an empty file
    if kind == "tar":
        write_tar(tmp_path / "in" / "00000.tar", members)
    else:
        for name, data in members.items():
            path = tmp_path / "in" / "00000" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    given = SplitOptions(sources=[str(tmp_path / "in")], by="source", holdout="none", max_skip="0")
    manifest = make_stream(given, tmp_path / "stream")
    assert (manifest["read"], manifest["skipped"]) == (5, {"failed download": 3})
    rows = [
        json.loads(line) for line in (tmp_path / "stream/skipped.ndjson").read_text().splitlines()
    ]
    assert [row["detail"] for row in rows] == [
        "failed_to_download: HTTP Error 404",
        "failed_to_download",
        "failed_to_download: HTTP Error 404",
    ]


@pytest.mark.parametrize("kind", ["tar", "files", "parquet"])
def test_downloads_that_img2dataset_left_out_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    directory = tmp_path / "in"
    if kind == "tar":
        write_tar(directory / "00000.tar", img2dataset_members(9))
    elif kind == "files":
        fill(directory / "00000", a_png=IMAGE, a_txt="c")
    else:
        good = {"jpg": IMAGE, "caption": "c", "status": "success", "error_message": None}
        bad = {**good, "jpg": None, "status": "failed_to_resize", "error_message": "too small"}
        write_parquet(directory / "00000.parquet", [good, bad, bad])
    numbers = {"count": 3, "successes": 1, "failed_to_download": 2}
    (directory / "00000_stats.json").write_text(json.dumps(numbers))
    given = SplitOptions(sources=[str(directory)], by="source", holdout="none", max_skip="0")
    manifest = make_stream(given, tmp_path / "stream")
    assert manifest["skipped"] == {"failed download": 2}
    assert manifest["read"] == (11 if kind == "tar" else 3)
    assert "; 2 failed downloads" in capsys.readouterr().err
    assert "failed download" in (tmp_path / "stream/skipped.ndjson").read_text()


def test_failed_downloads_do_not_excuse_other_errors(tmp_path: Path) -> None:
    members = img2dataset_members(2) | failed(7) | {"000000008.txt": b"alone"}
    # A status is img2dataset's only beside its error message.
    members["000000009.json"] = json.dumps({"status": "failed", "caption": "c"}).encode()
    write_tar(tmp_path / "in.tar", members)
    given = SplitOptions(sources=[str(tmp_path / "in.tar")], by="source", max_skip="1")
    with pytest.raises(
        TooManySkipped, match=r"2 of 5 samples cannot be used \(no image 2\).*000000008"
    ):
        make_stream(given, tmp_path / "stream")


def test_a_name_that_is_not_utf_8_is_refused_before_any_work(tmp_path: Path) -> None:
    path = write_tar(Path(os.fsdecode(bytes(tmp_path) + b"/\xff.tar")), img2dataset_members(1))
    with pytest.raises(BadInput, match="not UTF-8; rename it"):
        read_pairs(path)
    directory = Path(os.fsdecode(bytes(tmp_path) + b"/\xfe"))
    fill(directory, a_png=IMAGE, a_txt="a caption")
    with pytest.raises(BadInput, match="not UTF-8; rename it"):
        read_pairs(directory)


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = fill(tmp_path / "d", a_png=IMAGE, a_txt="a caption")

    def walk(top: object, onerror: object) -> object:
        onerror(PermissionError(13, "Permission denied", str(top)))  # type: ignore[operator]
        return iter(())

    monkeypatch.setattr(folders.os, "walk", walk)
    said = refusal(lambda: list(folders.walk(directory)), directory)
    assert "Permission denied" in str(said)
