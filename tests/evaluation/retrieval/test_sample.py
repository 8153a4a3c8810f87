"""--sample: the samples with the lowest keys, the same ones wherever the split is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.samples import Samples
from vlcpctl.testing.tiny_stream import make_task


@pytest.fixture
def task(tmp_path: Path) -> Path:
    make_task(tmp_path / "task", splits={"train": 2, "test": 9})
    return tmp_path / "task"


def test_a_part_of_a_split_reads_as_the_whole_does(task: Path) -> None:
    whole, part = (open_task(task).split("test", count) for count in (None, 4))
    keys = list(whole.keys)
    lowest = sorted(keys)[:4]
    assert list(part.keys) == [key for key in keys if key in lowest]
    assert len(part) == 4
    for row, key in enumerate(part.keys):
        there = keys.index(key)
        assert part.image(row) == whole.image(there)
        assert part.captions(row) == whole.captions(there)
        assert part.column("sha256")[row] == whole.column("sha256")[there]
    assert list(open_task(task).split("test", 9).keys) == keys
    assert list(open_task(task).split("test", 100).keys) == keys


def test_another_process_opens_the_same_part(task: Path) -> None:
    part = open_task(task).split("test", 3)
    kind, arguments = part.__reduce__()
    assert list(kind(*arguments).keys) == list(part.keys)


def test_layouts_are_of_the_part(task: Path) -> None:
    source = Samples(open_task(task), "test", None, 4)
    assert len(source.captioned.images.of_N) == 4
    assert len(source) == 4
    with pytest.raises(BadInput, match="no images in split 'val'"):
        open_task(task).split("val", 4)
