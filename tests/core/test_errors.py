"""Suggestions in messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import missing, nearest, unknown_name, unreadable


def test_a_name_is_never_suggested_for_itself() -> None:
    assert nearest("rm", ["rm", "rmm"]) == "rmm"
    assert nearest("rm", ["rm"]) is None
    assert unknown_name("metric", "rm", ["rm"]) == "unknown metric 'rm' (known: rm)"


def test_a_path_like_one_that_exists_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs.parquet").touch()
    Path(".hidden-file").touch()
    assert missing("pairs.parqet") == "pairs.parqet does not exist; did you mean pairs.parquet?"
    assert missing("other") == "other does not exist"
    assert missing("hidden-file") == "hidden-file does not exist"
    assert missing(tmp_path / "no" / "pairs") == f"{tmp_path}/no/pairs does not exist"
    said = unreadable(f"{tmp_path}/pair.parquet", FileNotFoundError(2, "No such file"))
    assert said.endswith(f"No such file; did you mean {tmp_path}/pairs.parquet?")
    assert "mean" not in unreadable("pairs.parqet", PermissionError(13, "Permission denied"))
