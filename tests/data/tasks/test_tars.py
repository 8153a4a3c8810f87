"""The tars we write: what others read of them, and many pieces appended in few calls."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from vlcpctl.data.tasks.tars import BLOCK, Appender, header
from vlcpctl.data.tasks.task import open_task
from vlcpctl.testing.tiny_stream import make_task


def test_header_is_the_one_that_tarfile_writes() -> None:
    key = "0123456789abcdef" * 2
    member = tarfile.TarInfo(f"{key}.json")
    member.size = 123_456
    assert header(key, "json", 123_456) == member.tobuf(tarfile.USTAR_FORMAT)


def test_tarfile_finds_every_sample_with_its_bytes_and_captions(tmp_path: Path) -> None:
    split = open_task(make_task(tmp_path / "task", 9)).split("train")
    with tarfile.open(tmp_path / "task" / "train-000000.tar") as tar:
        assert len(tar.getnames()) == 27
        for row, key in enumerate(split.keys):
            assert tar.extractfile(f"{key}.png").read() == split.image(row)
            assert tar.extractfile(f"{key}.txt").read().decode() == split.captions(row)[0]
            described = json.load(tar.extractfile(f"{key}.json"))
            assert described["key"] == key
            assert described["captions"] == split.captions(row)
            assert described["task"] == "tiny"


def test_shards_stay_below_their_size_or_hold_one_sample(tmp_path: Path) -> None:
    task = open_task(make_task(tmp_path / "task", 20, shard_bytes=20_000))
    shards = task.manifest.splits["train"].shards
    assert len(shards) > 2
    assert all((tmp_path / "task" / shard).stat().st_size <= 20_000 for shard in shards)
    split = task.split("train")
    assert len({split.image(row) for row in range(20)}) == 20
    assert (
        len(
            open_task(make_task(tmp_path / "other", 3, shard_bytes=BLOCK))
            .manifest.splits["train"]
            .shards
        )
        == 3
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_webdataset_reads_the_same_keys_bytes_and_captions(tmp_path: Path) -> None:
    import webdataset

    task = make_task(tmp_path / "task", 12, shard_bytes=20_000)
    split = open_task(task).split("train")
    urls = [str(path) for path in sorted(task.glob("train-*.tar"))]
    read = {one["__key__"]: one for one in webdataset.WebDataset(urls, shardshuffle=False)}
    assert list(read) == split.keys
    for row, key in enumerate(split.keys):
        assert read[key]["png"] == split.image(row)
        assert read[key]["txt"].decode().split("\n") == split.captions(row)


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
