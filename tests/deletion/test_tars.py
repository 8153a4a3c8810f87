"""Samples in tars, and tars without some of them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.tars import header
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion.tars import Tars, _member
from vlcpctl.testing.tiny_stream import make_task


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return make_task(tmp_path / "task", 5) / "train-000000.tar"


def test_samples_are_what_other_programs_read(tar: Path) -> None:
    with tarfile.open(tar) as file:
        wanted = list(dict.fromkeys(member.name.split(".")[0] for member in file))
    tars = Tars()
    samples = tars.samples(tar)
    assert [one.key for one in samples] == wanted
    assert [tars.description(tar, one)["key"] for one in samples] == wanted


def test_a_tar_without_samples_is_the_tar_of_the_others(tar: Path, tmp_path: Path) -> None:
    split = open_task(tar.parent).split("train")
    drop = {split.keys[1], split.keys[4]}
    out = tmp_path / "out.tar"
    moves = Tars().rewrite(tar, out, out, drop)
    rest = [row for row, key in enumerate(split.keys) if key not in drop]
    data = out.read_bytes()
    for row in rest:
        offset = split.column("offset")[row] - moves[split.keys[row]]
        assert data[offset : offset + split.column("size")[row]] == split.image(row)
    with tarfile.open(out) as file:
        assert len(file.getnames()) == 3 * len(rest)
    assert len(moves) == 3


def test_members_may_have_more_than_a_gigabyte(tmp_path: Path) -> None:
    key, size = "0a" * 16, 5 << 30
    assert _member(header(key, "jpg", size), tmp_path) == (key, "jpg", size)


@pytest.mark.parametrize("place", [0, 3000, -900])
def test_a_damaged_tar_is_not_taken_for_a_shorter_one(tar: Path, place: int) -> None:
    """Python's own reader takes a damaged header for the end of the file."""
    data = bytearray(tar.read_bytes())
    samples = Tars().samples(tar)
    at = {0: 0, 3000: samples[2].start, -900: len(data) - 900}[place]
    data[at] ^= 1
    tar.write_bytes(data)
    with pytest.raises(BadInput, match=r"damaged|more than its samples"):
        Tars().samples(tar)
    tar.write_bytes(data[:-2000])
    with pytest.raises(BadInput):
        Tars().samples(tar)
