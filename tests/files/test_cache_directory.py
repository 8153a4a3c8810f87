"""The directory of --cache: only what vlcpctl made is taken for one, and may be emptied."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import CACHE_SETTING
from vlcpctl.files.stores import is_cache, use_cache

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n"


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_SETTING, "")  # use_cache sets it; this puts it back afterwards


@pytest.mark.parametrize("name", ["holiday.jpg", "CACHEDIR.TAG"])
def test_a_directory_of_others_is_no_cache(tmp_path: Path, name: str) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / name).write_text(TAG)
    with pytest.raises(BadInput, match="other files"):
        use_cache(tmp_path / "theirs")
    assert not is_cache(tmp_path / "theirs")
    assert (tmp_path / "theirs" / name).read_text() == TAG


def test_a_new_or_empty_directory_becomes_a_cache(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/CACHEDIR.TAG").touch()  # another process is making it
    for name in ("new", "empty", "empty", "begun"):
        assert is_cache(use_cache(tmp_path / name))
