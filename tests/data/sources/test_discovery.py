"""Which files a SOURCE refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images.header import BrokenImage, read_header
from vlcpctl.data.sources.find import find_inputs

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"


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
    path.write_bytes(POINTER)
    with pytest.raises(BadInput, match="git lfs pull"):
        find_inputs([str(path)])
    with pytest.raises(BrokenImage, match="git lfs pull"):
        read_header(POINTER)
