"""Which files a SOURCE refers to."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.data.sources.discovery import find_inputs


def test_lists_of_splits_are_found_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/train.json").write_text("[]")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/json").symlink_to(tmp_path / "lists")
    (source,) = find_inputs([str(tmp_path / "data")])
    assert [file.path for file in source.files] == [tmp_path / "data/json/train.json"]
