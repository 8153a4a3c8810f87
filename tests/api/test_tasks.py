"""The pairs of a task as code of a user's own reads them."""

from __future__ import annotations

import io
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.pair_files import rows, write_parquet
from support.program import run_program

import vlcpctl
from vlcpctl.data.tasks.tars import BLOCK, header
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_task

# webdataset leaves it to Python to close its tars.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def task(tmp_path: Path) -> vlcpctl.Task:
    path = make_task(tmp_path / "task", splits={"train": 5, "test": 2}, shard_bytes=10_000)
    assert len(list(path.glob("train-*.tar"))) > 1
    return vlcpctl.Task(path)


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image)


def test_a_task_has_its_pairs(task: vlcpctl.Task) -> None:
    pairs = task.pairs()
    assert (task.name, task.splits, len(pairs)) == ("tiny", {"train": 5, "test": 2}, 5)
    for number, pair in enumerate(pairs):
        wanted = make_pair(number)
        assert np.array_equal(
            pixels(pair.image), pixels(Image.open(io.BytesIO(make_image(number))))
        )
        assert pair.captions == wanted.captions
        assert (pair.columns["label"], pair.columns["source_key"]) == (
            wanted.label,
            f"{number:06d}",
        )
    assert pairs[-1].columns == pairs[4].columns
    assert [one.columns for one in pairs[1:3]] == [pairs[1].columns, pairs[2].columns]
    assert pickle.loads(pickle.dumps(pairs))[0].columns == pairs[0].columns  # in a worker
    with pytest.raises(IndexError):
        pairs[5]
    with pytest.raises(vlcpctl.BadInput, match="'val'"):
        task.webdataset("val")


def test_kept_columns_come_with_the_pairs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_parquet(tmp_path / "pairs.parquet", rows(6))
    how = ("--by", "all:x", "--holdout", "none", "--keep-columns", "date", "-q")
    done = run_program(capfd, "split", tmp_path / "pairs.parquet", "-o", tmp_path / "s", *how)
    assert done.code == 0, done.err
    pairs = vlcpctl.Task(tmp_path / "s" / "00-x").pairs()
    assert sorted(one.columns["date"] for one in pairs)[0] == ["2024-01-01"]


def test_webdataset_gives_the_pairs_of_the_index(task: vlcpctl.Task) -> None:
    found = list(task.webdataset())
    for one, other in zip(found, task.pairs(), strict=True):
        assert np.array_equal(pixels(one.image), pixels(other.image))
        assert (one.captions, one.columns) == (other.captions, other.columns)


def test_webdataset_gives_no_pair_that_a_buffer_has_evicted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    earlier: tuple[Any, ...] = ()
    for step in range(2):
        path = make_task(tmp_path / f"task-{step}", 8, step=step, first=8 * step, tasks_in_stream=2)
        out, how = tmp_path / f"buffer-{step}", ("--policy", "ring", "--size", 6, "-q")
        words = ("buffer", path, "-o", out, *how, *earlier)
        assert run_program(capfd, *words).code == 0
        earlier = ("--previous", tmp_path / "buffer-0")
    buffer = vlcpctl.Task(tmp_path / "buffer-1")
    in_tars = 0
    for path in buffer.path.glob("*.tar"):
        with tarfile.open(path) as tar:
            in_tars += sum(name.endswith(".json") for name in tar.getnames())
    assert in_tars > 6
    found = [one.columns["key"] for one in buffer.webdataset()]
    assert sorted(found) == sorted(one.columns["key"] for one in buffer.pairs())


class Trap:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_webdataset_loads_no_pickle(task: vlcpctl.Task, tmp_path: Path) -> None:
    """One in place of the captions' text."""
    pickled = pickle.dumps(Trap(tmp_path / "sprung"))
    pickle.loads(pickled)
    (tmp_path / "sprung").unlink()
    path = task.path / "train-000000.tar"
    data = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        text = next(one for one in tar.getmembers() if one.name.endswith(".txt"))
    key = text.name.removesuffix(".txt")
    data[text.offset : text.offset_data] = header(key, "pyd", len(pickled))
    data[text.offset_data : text.offset_data + BLOCK] = pickled.ljust(BLOCK, b"\0")
    path.write_bytes(data)
    assert next(iter(task.webdataset())).columns["key"] == key
    assert not (tmp_path / "sprung").exists()


def test_a_path_is_no_url_and_no_command(
    task: vlcpctl.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """webdataset runs what follows `pipe:`."""
    monkeypatch.chdir(tmp_path)
    moved = shutil.move(task.path, tmp_path / "what?")
    with pytest.raises(vlcpctl.BadInput, match="for a URL"):
        vlcpctl.Task(moved).webdataset()
    shutil.move(moved, tmp_path / "pipe:touch x")
    assert len(list(vlcpctl.Task("pipe:touch x").webdataset())) == 5
    assert not (tmp_path / "x").exists()
