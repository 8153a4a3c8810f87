"""Buffer updates that may not be meant are told, and the buffer's manifest says so too."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import buffer
from support.rewritten import forget_pair

from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.tiny_stream import make_stream

RING = {"policy": "ring", "size": "4", "quiet": True}


@pytest.fixture
def tasks(tmp_path: Path) -> list[Path]:
    return sorted(make_stream(tmp_path / "stream", 3, 6).glob("0*"))


def test_an_update_in_order_says_nothing(
    tasks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buffer(tasks[0], tmp_path / "0", **RING)
    buffer(tasks[1], tmp_path / "1", previous=tmp_path / "0", **RING)
    assert "warnings" not in read_manifest(tmp_path / "1", "task")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dry", [False, True])
def test_an_update_that_skips_a_task_is_told(
    tasks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], *, dry: bool
) -> None:
    buffer(tasks[0], tmp_path / "0", **RING)
    buffer(tasks[2], tmp_path / "2", previous=tmp_path / "0", dry_run=dry, **RING)
    said = "--previous was not updated with 01-part-1, earlier in the stream than 02-part-2"
    assert capsys.readouterr().err == f"warning: {said}\n"
    if not dry:
        assert read_manifest(tmp_path / "2", "task")["warnings"] == [said]


def test_an_earlier_task_after_a_later_one_is_told(
    tasks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buffer(tasks[1], tmp_path / "1", **RING)
    buffer(tasks[0], tmp_path / "0", previous=tmp_path / "1", **RING)
    said = "--previous contains pairs of 01-part-1, later in the stream"
    assert said in capsys.readouterr().err


def test_the_buffer_of_a_stream_that_was_split_again_is_told(
    tasks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buffer(tasks[0], tmp_path / "0", **RING)
    again = make_stream(tmp_path / "again", 3, 6, test=5)
    buffer(again / "01-part-1", tmp_path / "1", previous=tmp_path / "0", **RING)
    said = "--previous is of another stream and lacks 00-part-0, earlier in the stream than"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("size", "told"), [("6", False), ("4", True)])
def test_a_buffer_with_fewer_images_because_it_was_rewritten_has_evicted_none(
    tasks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str, *, told: bool
) -> None:
    buffer(tasks[0], tmp_path / "0", policy="ring", size=size, quiet=True)
    forget_pair(tmp_path / "0")
    buffer(tasks[1], tmp_path / "1", policy="ring", size="9", previous=tmp_path / "0", quiet=True)
    assert ("the items of earlier tasks that it evicted" in capsys.readouterr().err) == told
