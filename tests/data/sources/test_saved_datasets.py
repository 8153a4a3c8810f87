"""Data sets that the `datasets` library saved to disk: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.hostile import mutated, refusal
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


def _with_state(**state: object) -> dict[str, Any]:
    return {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], **state}


BAD_STATES: dict[str, tuple[object, str]] = {
    "outside": (_with_state(_data_files=[{"filename": "../x.arrow"}]), "is not a name beside it"),
    "absolute": (_with_state(_data_files=[{"filename": "/etc/passwd"}]), "is not a name beside it"),
    "a number": (_with_state(_data_files=3), "is not a name beside it"),
    "missing": (_with_state(_data_files=[{"filename": "no.arrow"}]), "does not exist, but"),
    "nothing": ({}, "is malformed: None is not a name"),
    "a list": ([], "state.json: "),
    "deep": ("[" * 10**5, "state.json is not readable JSON"),
    "no rows": (_with_state(_data_files=[]), "ds has no rows"),
    "a mapping": (_with_state(_indices_data_files=[{"filename": "i.arrow"}]), "an old version"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_malformed_state_is_refused(tmp_path: Path, name: str) -> None:
    source = save_dataset(tmp_path / "ds", [table(1)])
    content, words = BAD_STATES[name]
    text = content if isinstance(content, str) else json.dumps(content)
    (source / "state.json").write_text(text)
    assert words in str(refusal(lambda: read_pairs(source), source))


def test_an_unfinished_or_misleading_dict_is_refused(tmp_path: Path) -> None:
    source = save_dataset_dict(tmp_path / "ds", {"train": [table(1)]})
    (source / "train" / "state.json").rename(source / "train" / "gone")
    assert "save_to_disk has not finished" in str(refusal(lambda: read_pairs(source), source))
    (source / "dataset_dict.json").write_text(json.dumps({"splits": ["../.."]}))
    assert "is not a name beside it" in str(refusal(lambda: read_pairs(source), source))
    (source / "dataset_dict.json").unlink()
    said = str(refusal(lambda: read_pairs(source), source))
    assert "no data set that save_to_disk has finished" in said


def _damaged(data: bytes, how: str) -> bytes:
    return {
        "cut in a batch": data[:-400],
        "cut in a batch, with an end": data[:-400] + data[-8:],
        "cut after the schema": data[:64],
        "without its end": data[:-8],
        "followed by another": data + data,
        "empty": b"",
        "text": b"hello, arrow",
        "an end alone": data[-8:],
        "for random access": b"ARROW1\0\0" + data + b"ARROW1",
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        *("cut in a batch", "cut in a batch, with an end", "cut after the schema"),
        *("without its end", "followed by another", "empty", "text", "an end alone"),
        "for random access",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, how: str) -> None:
    path = write_arrow(tmp_path / "x.arrow", table(20))
    path.write_bytes(_damaged(path.read_bytes(), how))
    assert refusal(lambda: read_pairs(path), path)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_and_dictionaries_are_read(tmp_path: Path, codec: str) -> None:
    plain = read_pairs(write_arrow(tmp_path / "x.arrow", table(20)), value="label")
    path = write_arrow(tmp_path / "y.arrow", table(20), compression=codec)
    assert [pair.captions for pair in read_pairs(path)] == [pair.captions for pair in plain]
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    content = pa.table({"image": [make_image(0, 8)] * 3, "text": texts})
    pairs = read_pairs(write_arrow(tmp_path / "z.arrow", content, rows=2))
    assert [pair.captions for pair in pairs] == [["a"], ["b"], ["a"]]


def test_offsets_outside_their_buffer_are_refused(tmp_path: Path) -> None:
    content = pa.table({"image": [make_image(0, 8)] * 3, "text": ["a", "b", "c"]})
    path = write_arrow(tmp_path / "x.arrow", content)
    data = bytearray(path.read_bytes())
    length = len(make_image(0, 8))
    offsets = np.array([0, length, 2 * length, 3 * length], "<i4").tobytes()
    place = data.index(offsets)
    for wrong in ([0, length, 2 * length, 2**30], [-(2**30), 1, 2, 3], [0, length, 5, 3 * length]):
        data[place : place + 16] = np.array(wrong, "<i4").tobytes()
        path.write_bytes(data)
        assert "is damaged after row 0" in str(refusal(lambda: read_pairs(path), path))


def test_text_that_is_no_utf_8_and_types_that_are_no_json_are_refused(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "x.arrow", table(2))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"caption 0001", b"caption \xff\xff\xff\xff"))
    assert "UTF8" in str(refusal(lambda: read_pairs(path), path))
    path.write_bytes(data.replace(b'{"info": ', b'{"info"; '))
    assert "types of its columns are not readable" in str(refusal(lambda: read_pairs(path), path))


def test_any_file_ends_in_pairs_or_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    data = write_arrow(path, table(5, owner=pa.array(list("abcde")))).read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(200):
        path.write_bytes(mutated(data[:-8], draw) + data[-8:])
        refusal(lambda: read_pairs(path, keep=("owner",)), path)
