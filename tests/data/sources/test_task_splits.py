"""A task as a source of `split`: its splits, keys and kept columns come back as they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image

FILES = ("train-000000.tar", "train.parquet", "train.arrow", "test-000000.tar", "test.parquet")


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    pairs = {
        "image": [make_image(number) for number in range(12)],
        "caption": [f"thing {number}" for number in range(12)],
        "id": [f"id-{number}" for number in range(12)],
        "label": ["even", "odd"] * 6,
        "customer": ["ann", "bob", "cy"] * 4,
        "split": ["train", "train", "test"] * 4,
    }
    pq.write_table(pa.table(pairs), tmp_path / "pairs.parquet")
    how = {"split_column": "split", "keep_columns": "customer"}
    return split(tmp_path / "pairs.parquet", tmp_path / "stream", "all:week", **how)


def split(source: Path, out: Path, by: str, **how: str) -> Path:
    make_stream(SplitOptions(sources=[str(source)], by=by, **how), out)
    return out


def test_a_task_is_written_again_with_the_same_bytes(stream: Path, tmp_path: Path) -> None:
    how = {"split_column": "split", "keep_columns": "customer"}
    again = split(stream / "00-week", tmp_path / "again", "all:week", **how)
    for name in FILES:
        one, other = (root / "00-week" / name for root in (stream, again))
        assert one.read_bytes() == other.read_bytes(), name


def test_a_kept_column_and_a_label_divide_it(stream: Path, tmp_path: Path) -> None:
    of_customers = split(stream / "00-week", tmp_path / "customers", "column:customer")
    assert [task.name for task in open_stream(of_customers)] == ["ann", "bob", "cy"]
    of_labels = open_stream(split(stream / "00-week", tmp_path / "labels", "column:label"))
    found = [task.split("train") for task in of_labels]
    assert sorted(found[0].column("source_key")) == [
        f"id-{number}" for number in (0, 10, 2, 4, 6, 8)
    ]
    assert found[0].column("label") == ["even"] * 6
