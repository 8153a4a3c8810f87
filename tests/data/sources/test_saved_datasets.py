"""Data sets that the `datasets` library saved to disk: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.pair_files import read_pairs
from support.saved_datasets import (
    CLASSES,
    save_dataset,
    save_dataset_dict,
    table,
    write_arrow,
)

from vlcpctl.core.errors import BadInput
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import describe_plan, make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image


def test_shards_are_read_in_the_order_of_the_state(tmp_path: Path) -> None:
    save_dataset(tmp_path / "ds", [table(9), table(2, 9)], split="train")
    pairs = read_pairs(tmp_path / "ds", value="label")
    assert [bytes(pair.image or b"") for pair in pairs] == [make_image(n, 8) for n in range(11)]
    assert [pair.place for pair in pairs] == [*range(9), 0, 1]
    assert pairs[3].captions == ["caption 0003", "another"]
    assert [pair.label for pair in pairs[:2]] == list(CLASSES)
    assert [pair.value for pair in pairs[:2]] == list(CLASSES)


def test_the_splits_of_a_dict_its_classes_and_kept_columns_are_those_of_the_stream(
    tmp_path: Path,
) -> None:
    def shard(count: int, first: int) -> pa.Table:
        owners = [f"owner {number % 3}" for number in range(count)]
        return table(count, first, owner=pa.array(owners), kind=pa.array([1] * count))

    splits = {"train": [shard(4, 0), shard(2, 4)], "validation": [shard(1, 6)], "test": []}
    source = save_dataset_dict(tmp_path / "ds", splits)
    given = SplitOptions(
        sources=[str(source)], by="column:label", split_column="split", keep_columns="owner,kind"
    )
    assert describe_plan(given, tmp_path / "out")["pairs"] == 7
    make_stream(given, tmp_path / "out")
    cat, dog = open_stream(tmp_path / "out")
    assert (cat.name, dog.name) == CLASSES
    assert (dict(cat.counts), dict(dog.counts)) == ({"train": 3, "val": 1}, {"train": 3})
    assert dog.split("train").column("owner") == [["owner 1"], ["owner 0"], ["owner 1"]]
    assert dog.split("train").column("kind") == [["outdoor"]] * 3


def test_the_split_of_one_data_set_is_in_its_state(tmp_path: Path) -> None:
    save_dataset(tmp_path / "ds", [table(1)], split="test")
    assert [pair.split for pair in read_pairs(tmp_path / "ds", split="split")] == ["test"]
    save_dataset(tmp_path / "ds", [table(1).append_column("split", pa.array(["val"]))], "test")
    assert [pair.split for pair in read_pairs(tmp_path / "ds", split="split")] == ["val"]
    save_dataset(tmp_path / "ds", [table(1)])
    with pytest.raises(BadInput, match="unknown column 'split'"):
        read_pairs(tmp_path / "ds", split="split")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_and_dictionaries_are_read(tmp_path: Path, codec: str) -> None:
    plain = read_pairs(write_arrow(tmp_path / "x.arrow", table(20)), value="label")
    path = write_arrow(tmp_path / "y.arrow", table(20), compression=codec)
    assert [pair.captions for pair in read_pairs(path)] == [pair.captions for pair in plain]
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    content = pa.table({"image": [make_image(0, 8)] * 3, "text": texts})
    pairs = read_pairs(write_arrow(tmp_path / "z.arrow", content, rows=2))
    assert [pair.captions for pair in pairs] == [["a"], ["b"], ["a"]]
