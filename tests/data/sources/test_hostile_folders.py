"""Directories of links, pipes and odd names, and sources that are no files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.hostile import refusal
from support.pair_files import img2dataset_members, read_pairs, write_tar

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources import folders
from vlcpctl.testing.tiny_stream import make_image


def sample(directory: Path, name: str = "a") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.png").write_bytes(make_image(0, 8))
    (directory / f"{name}.txt").write_text("a caption")
    return directory


def test_what_is_no_file_in_a_folder_is_a_flaw(tmp_path: Path) -> None:
    directory = sample(tmp_path / "d")
    os.mkfifo(directory / "pipe.png")
    (directory / "zero.png").symlink_to("/dev/zero")
    (directory / "link.png").symlink_to("nowhere")
    (directory / "loop.png").symlink_to("loop.png")
    (directory / "text.png").write_bytes(make_image(1, 8))
    os.mkfifo(directory / "text.txt")
    flaws = {pair.place: str(pair.flaw) for pair in read_pairs(directory)}
    assert flaws.pop("a") == "None"
    assert set(flaws) == {"pipe", "zero", "link", "loop", "text"}
    assert "not a regular file" in flaws["pipe"]
    assert "not a regular file" in flaws["zero"]
    assert "No such file" in flaws["link"]
    assert "symbolic links" in flaws["loop"]
    assert "not a regular file" in flaws["text"]


def test_a_loop_of_directories_ends(tmp_path: Path) -> None:
    directory = sample(tmp_path / "d")
    (directory / "again").symlink_to(directory)
    (directory / "sub").mkdir()
    (directory / "sub" / "up").symlink_to("..")
    assert len(read_pairs(directory)) == 1


@pytest.mark.parametrize("suffix", ["tar", "parquet", "json", "csv", "txt", ""])
def test_a_source_that_is_no_file_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    os.mkfifo(path)
    assert "not a regular file" in str(refusal(lambda: read_pairs(path), path))
    assert "not a regular file" in str(refusal(lambda: read_pairs(Path("/dev/null")), Path("null")))
    path.unlink()
    path.symlink_to(path.name)
    assert "symbolic links" in str(refusal(lambda: read_pairs(path), path))


def test_a_pipe_in_a_directory_of_shards_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    write_tar(directory / "a.tar", img2dataset_members(1))
    os.mkfifo(directory / "b.tar")
    assert "not a regular file" in str(refusal(lambda: read_pairs(directory), directory / "b.tar"))


def test_a_name_that_is_not_utf_8_is_refused_before_any_work(tmp_path: Path) -> None:
    path = write_tar(Path(os.fsdecode(bytes(tmp_path) + b"/\xff.tar")), img2dataset_members(1))
    with pytest.raises(BadInput, match="not UTF-8; rename it"):
        read_pairs(path)
    directory = sample(Path(os.fsdecode(bytes(tmp_path) + b"/\xfe")))
    with pytest.raises(BadInput, match="not UTF-8; rename it"):
        read_pairs(directory)


def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = sample(tmp_path / "d")

    def walk(top: object, onerror: object) -> object:
        onerror(PermissionError(13, "Permission denied", str(top)))  # type: ignore[operator]
        return iter(())

    monkeypatch.setattr(folders.os, "walk", walk)
    said = refusal(lambda: list(folders.walk(directory)), directory)
    assert "Permission denied" in str(said)
