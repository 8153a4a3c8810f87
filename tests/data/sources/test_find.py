"""Which files a SOURCE refers to: of globs and directories, and what is refused before any work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.pair_files import img2dataset_members, read_pairs, rows, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.data.images.header import BrokenImage, read_header
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0, 8)


def put(directory: Path, *names: str, data: bytes = IMAGE) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def found_in(*sources: object) -> list[Path]:
    return [file.path for one in find_inputs([*map(str, sources)]) for file in one.files]


def test_globs_are_expanded_in_order_and_each_file_is_read_once(tmp_path: Path) -> None:
    paths = [write_tar(tmp_path / f"{name}.tar", img2dataset_members(1)) for name in "ba"]
    assert found_in(tmp_path / "*.tar") == paths[::-1]
    with pytest.raises(UsageError, match="given twice"):
        found_in(paths[0], tmp_path)
    for name in ("pipe:touch owned", "s3://bucket/x.tar", "a.tar::b.tar"):
        with pytest.raises(UsageError, match="not a path"):
            found_in(name)


def test_hidden_directories_are_not_sources(tmp_path: Path) -> None:
    """Such as an output that `--force` replaced, kept beside the output in the same directory."""
    write_parquet(tmp_path / "pairs.parquet", rows(2))
    write_parquet(tmp_path / ".old.vlcpctl" / "replaced" / "old" / "pairs.parquet", rows(2))
    assert found_in(tmp_path) == [tmp_path / "pairs.parquet"]


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    put(tmp_path, "pairs.parquet", data=pointer)
    with pytest.raises(BadInput, match="git lfs pull"):
        found_in(tmp_path / "pairs.parquet")
    with pytest.raises(BrokenImage, match="git lfs pull"):
        read_header(pointer)


def test_a_name_that_is_not_utf_8_is_refused_before_any_work(tmp_path: Path) -> None:
    path, directory = (
        Path(os.fsdecode(bytes(tmp_path) + name)) for name in (b"/\xff.tar", b"/\xfe")
    )
    write_tar(path, img2dataset_members(1))
    put(directory, "a.png", "a.txt")
    for source in (path, directory):
        with pytest.raises(BadInput, match="not UTF-8; rename it"):
            found_in(source)


def test_a_directory_without_pairs_says_what_it_may_have(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", data=b"words")
    with pytest.raises(BadInput, match="contains no Parquet file, tar"):
        found_in(tmp_path)
    put(tmp_path, "a.HEIC")
    with pytest.raises(BadInput, match=r"JPEG, PNG or WebP.*convert"):
        found_in(tmp_path)
    put(tmp_path, "3.png")
    assert ["HEIC" in str(one.flaw) for one in read_pairs(tmp_path)] == [False, True]


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
    put(tmp_path, "a.png", "d/b.png")
    put(tmp_path, "README.txt", data=b"about these images, and others")
    put(tmp_path, "settings.json", data=b'{"size": 3}')
    if name not in TABLES:
        listed = {"a.png": "one", "d/b.png": "two"}.items()
        write_parquet(tmp_path / name, [{"image": one, "caption": text} for one, text in listed])
        assert [one.captions for one in read_pairs(tmp_path)] == [["one"], ["two"]]
        return
    (tmp_path / name).write_text(TABLES[name])
    pairs = read_pairs(tmp_path)
    assert [(one.captions, one.image) for one in pairs] == [(["one"], IMAGE), (["two"], IMAGE)]
    (tmp_path / "more.csv").write_text(TABLES["pairs.csv"])
    with pytest.raises(BadInput, match=rf"contains both .*{name.rpartition('/')[2]}"):
        read_pairs(tmp_path)
    (tmp_path / "a.txt").write_text("words")
    assert {one.source_key: one.captions for one in read_pairs(tmp_path)}["a"] == ["words"]


@pytest.mark.parametrize("kind", ["tar", "files", "parquet"])
def test_a_shard_that_img2dataset_has_not_finished_is_bad_input(tmp_path: Path, kind: str) -> None:
    for shard in ("00000", "00001"):
        if kind == "files":
            put(tmp_path / shard, "a.jpg", "a.txt")
            write_parquet(tmp_path / f"{shard}.parquet", [{"url": "x", "key": "1"}])
        elif kind == "tar":
            write_tar(tmp_path / f"{shard}.tar", img2dataset_members(2))
        else:
            write_parquet(tmp_path / f"{shard}.parquet", [{"jpg": IMAGE, "caption": "c"}])
        put(tmp_path, f"{shard}_stats.json", data=b"{}")
    put(tmp_path / "_tmp", "x.png", "x.txt")  # which it writes while it runs
    assert len(read_pairs(tmp_path)) == {"tar": 4, "files": 2, "parquet": 2}[kind]
    (tmp_path / "00001_stats.json").unlink()
    with pytest.raises(BadInput, match="img2dataset has not finished it"):
        found_in(tmp_path)
