"""The staging directory of an output is one, however its path is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.files.staging import Staging, output_of, place_of, read_path, staging_at


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory real/deep, with the link `link` to it in the current directory."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "real" / "deep"


@pytest.mark.parametrize(
    "spelling", ["link/out", "link/./out", "link/../deep/out", "real/deep/out"]
)
def test_all_paths_to_an_output_have_one_staging_directory(linked: Path, spelling: str) -> None:
    assert Staging(Path(spelling)).path == linked / ".out.vlcpctl"
    assert Staging(Path(spelling)).output == linked / "out"


def test_dots_after_a_link_mean_what_the_system_means(linked: Path) -> None:
    assert place_of(Path("link/../out")) == linked.parent / "out"
    assert place_of(Path("link/..")) == linked.parent


def test_a_link_to_an_output_is_another_place(linked: Path) -> None:
    assert place_of(Path("link")) == linked.parent.parent / "link"


@pytest.mark.parametrize("spelling", ["link", "real/deep", "link/../deep"])
def test_a_directory_that_is_changed_in_place_has_its_lock_inside(
    linked: Path, spelling: str
) -> None:
    staging = Staging(Path(spelling), inside=True)
    assert (staging.output, staging.path) == (linked, linked / ".vlcpctl")
    with staging.locked():
        assert (linked / ".vlcpctl" / "made-by-vlcpctl").is_file()
        found = staging_at(linked / ".vlcpctl")
        assert found is not None
        assert found.marker == staging.marker
    assert not list(linked.iterdir())
    assert output_of(linked / ".vlcpctl") == linked


def test_the_hidden_directory_of_an_output_is_found_by_its_path(linked: Path) -> None:
    with Staging(linked / "out").locked():
        found = staging_at(linked / ".out.vlcpctl")
        assert found is not None
        assert found.output == linked / "out"
    assert staging_at(linked) is None


def test_what_cannot_be_a_path_is_left_to_those_who_open_it() -> None:
    assert read_path(Path("a\0b")) == Path("a\0b")
