"""Appending many pieces, and writing them to the disk while more are appended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vlcpctl.data.tasks import tar
from vlcpctl.data.tasks.tars import Appender


def test_more_pieces_than_one_call_takes_arrive_in_order(tmp_path: Path) -> None:
    pieces = [b"%d," % number for number in range(5000)]
    appender = Appender()
    for first in (0, 2500):
        appender.append(tmp_path / "file", pieces[first : first + 2500])
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_a_write_that_takes_only_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "writev", lambda file, pieces: os.write(file, b"".join(pieces)[:7]))
    appender = Appender()
    appender.append(tmp_path / "file", [b"0123456789", b"", b"abcdef", b"xyz"])
    assert (tmp_path / "file").read_bytes() == b"0123456789abcdefxyz"


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no hints")
def test_the_disk_begins_with_every_byte_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(tar, "_BEGUN_AFTER", 10)
    monkeypatch.setattr(os, "posix_fadvise", lambda _file, *place: begun.append(place[:2]))
    appender = Appender()
    for size in (4, 4, 4, 25, 3):
        appender.append(tmp_path / "file", [bytes(size)])
    appender.append(tmp_path / "file", [bytes(2)], last=True)
    assert begun == [(0, 12), (12, 25), (37, 5)]
