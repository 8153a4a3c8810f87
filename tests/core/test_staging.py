"""The staging directory of an output is one, however its path is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vlcpctl.core.errors import OutputExists
from vlcpctl.core.staging import Staging, output_of, place_of, read_path, staging_at


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


def test_a_directory_that_its_last_holder_removes_meanwhile_has_no_holders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path / "out")
    scan = os.scandir

    def scan_late(path: Path) -> object:
        staging.path.rmdir()
        return scan(path)

    staging.path.mkdir()
    monkeypatch.setattr(os, "scandir", scan_late)
    assert staging._parts() == []
    assert not staging.path.exists()


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


def test_a_swap_killed_half_way_is_read_through_a_link(linked: Path) -> None:
    staging = Staging(linked / "out")
    staging.ready.mkdir(parents=True)
    staging.marker.touch()
    assert read_path(Path("link/out/data")) == staging.ready / "data"
    Path("latest").symlink_to("link/out")
    assert read_path(Path("latest")) == staging.ready


def _is_anothers(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a staging directory with a whole output that belongs to another user."""
    (staging.ready / "data").mkdir(parents=True)
    staging.marker.touch()
    lstat = Path.lstat

    def owned(path: Path) -> os.stat_result:
        found = lstat(path)
        return os.stat_result([*found[:4], 12345, *found[5:]]) if path == staging.path else found

    monkeypatch.setattr(Path, "lstat", owned)


def test_what_another_user_left_is_neither_published_nor_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path / "out")
    _is_anothers(staging, monkeypatch)
    before = sorted(tmp_path.rglob("*"))
    staging.finish_swap()
    assert read_path(staging.output) == staging.output
    with pytest.raises(OutputExists, match=r"\.out\.vlcpctl belongs to another user \(id 12345\)"):
        staging.locked().__enter__()
    with pytest.raises(OutputExists, match="belongs to another user"):
        staging.locked_to_look().__enter__()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_finished_output_is_found_beside_what_another_user_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path / "out")
    _is_anothers(staging, monkeypatch)
    staging.output.touch()
    with staging.locked_to_look():
        assert staging.ready.exists()


def test_a_share_on_which_all_files_have_one_owner_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging(tmp_path / "out")
    _is_anothers(staging, monkeypatch)
    monkeypatch.setattr(Staging, "_new_owner", lambda _: 12345)
    with staging.locked():
        assert (staging.output / "data").is_dir()  # the swap is completed
