"""`split --in-place`: tasks that are indexes of tars of others, which nothing copies or changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pair_files import img2dataset_members, write_tar
from support.program import run_program

from vlcpctl.core.errors import BadInput
from vlcpctl.data.splitting.leaving_out import read_stop_list
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Three tars of ten samples, in a directory with a space in its name."""
    directory = tmp_path / "their tars"
    for number in range(3):
        write_tar(directory / f"{number:05d}.tar", img2dataset_members(10, first=10 * number))
    return directory


def made(sources: Path, out: Path, **options: object) -> Path:
    given = {"by": "iid", "tasks": 2, "holdout": "test=0.2"} | options
    make_stream(SplitOptions(sources=[str(sources)], **given), out)
    return out


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_the_pairs_are_those_of_a_copy(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = bytes_of(sources)
    copied, linked = (
        made(sources, tmp_path / name, in_place=is_linked)
        for name, is_linked in (("copied", False), ("linked", True))
    )
    assert bytes_of(sources) == before
    for one, other in zip(open_stream(copied), open_stream(linked), strict=True):
        assert (one.content, one.counts) == (other.content, other.counts)
        assert other.manifest.in_place
        for name, split in other.manifest.splits.items():
            assert split.bytes == sum(other.split(name).column("size"))
        for name in one.counts:
            mine, theirs = one.split(name), other.split(name)
            assert list(mine.keys) == list(theirs.keys)
            for row in range(len(mine)):
                assert mine.image(row) == theirs.image(row)
                assert mine.captions(row) == theirs.captions(row)
    assert {path.readlink().parent for path in linked.rglob("*.tar")} == {sources}
    assert "made in place" in run_program(capfd, "inspect", linked).out


@pytest.mark.parametrize("cwd", [".", ".."])
def test_links_are_right_wherever_the_sources_are_named_from(
    sources: Path, tmp_path: Path, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    link = tmp_path / "link to tars"
    link.symlink_to(sources)
    monkeypatch.chdir(tmp_path / "below")
    stream = made(Path("../link to tars"), Path(cwd) / "stream", in_place=True)
    monkeypatch.chdir(tmp_path)
    (task, _) = open_stream((tmp_path / "below" / stream).resolve())
    assert task.split("train").image(0)


def test_a_task_is_a_source_and_a_stream_names_its_tasks(sources: Path, tmp_path: Path) -> None:
    stream = made(sources, tmp_path / "stream", in_place=True)
    with pytest.raises(BadInput, match="made in place; give its tasks: ") as refused:
        made(stream, tmp_path / "again")
    (first, second) = str(refused.value).partition("tasks: ")[2].split(" ")
    options = SplitOptions(sources=[first, second], by="source", split_column="split")
    make_stream(options, tmp_path / "again")
    (one, other) = open_stream(tmp_path / "again"), open_stream(stream)
    assert [task.counts for task in one] == [task.counts for task in other]


def test_tars_that_moved_or_changed_are_refused_in_one_line(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = made(sources, tmp_path / "stream", in_place=True)
    (task, _) = open_stream(stream)
    tar = sources / "00000.tar"
    tar.rename(tmp_path / "away.tar")
    with pytest.raises(BadInput, match=r"is a link to .*00000\.tar, which is missing; restore it"):
        task.split("train")
    ended = run_program(capfd, "check", stream)
    assert f"is missing: it is a link to {tar}" in ended.out
    (tmp_path / "away.tar").rename(tar)  # as it says
    split = task.split("train")
    rows = [n for n, name in enumerate(split.column("shard")) if name == "train-000000.tar"]
    row, offset = rows[0], split.column("offset")[rows[0]]
    assert (task.path / "train-000000.tar").resolve() == tar.resolve()
    with tar.open("r+b") as file:
        file.seek(offset + 30)
        file.write(b"\0\1\2\3")
    with pytest.raises(BadInput, match="its sha256 differs"):
        task.split("train").image(row)
    assert "its sha256 differs" in run_program(capfd, "check", "--deep", stream).out
    with tar.open("ab") as file:
        file.write(bytes(512))
    with pytest.raises(BadInput, match="has changed since it was written"):
        task.split("train")


def test_forgotten_pairs_are_not_read_again_and_the_receipt_says_where_they_stay(
    sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = made(sources, tmp_path / "stream", in_place=True)
    before = bytes_of(sources)
    (task, _) = open_stream(stream)
    split = task.split("train")
    key, tar = split.keys[0], task.path / split.column("shard")[0]
    receipt = tmp_path / "receipt.json"
    words = ("forget", "--key", key, "--receipt", receipt, stream)
    ended = run_program(capfd, *words)
    assert ended.code == 0, ended.err
    assert "not removed: 1 pair in tars of others" in ended.err
    found = json.loads(receipt.read_text())
    assert found["state"] == "not removed from foreign tars"
    assert found["foreign"] == {str(tar.resolve()): 1}
    assert found["second_search"]["pairs"] == 0
    assert bytes_of(sources) == before
    assert key not in open_stream(stream)[0].split("train").keys
    assert run_program(capfd, "check", "--deep", stream).code == 0
    assert key in read_stop_list(receipt).keys
    again = made(sources, tmp_path / "again", in_place=True, not_=[receipt])
    assert all(key not in one.split(name).keys for one in open_stream(again) for name in one.counts)
    assert run_program(capfd, *words).code == 0  # nothing is left to do
    # A tar of which no pair is left is not linked.
    left = open_stream(stream)[0].split("train")
    keys = [
        one for one, name in zip(left.keys, left.column("shard"), strict=True) if name == tar.name
    ]
    more = [word for one in keys for word in ("--key", one)]
    assert run_program(capfd, "forget", *more, stream).code == 0
    assert not tar.is_symlink()
    assert run_program(capfd, "check", "--deep", stream).code == 0
    assert len(list(sources.iterdir())) == 3


def test_webdataset_is_refused_for_tars_of_others(sources: Path, tmp_path: Path) -> None:
    import vlcpctl

    (task, _) = open_stream(made(sources, tmp_path / "stream", in_place=True))
    opened = vlcpctl.Task(task.path)
    with pytest.raises(Exception, match="has no tars of its own"):
        opened.webdataset()
    assert len(list(opened.pairs())) == task.counts["train"]
