"""Typed tables: Parquet of any type, and data sets that `datasets` saved to disk."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import refusal
from support.pair_files import read_pairs, write_parquet
from support.saved_datasets import CLASSES, save_dataset, save_dataset_dict, table, write_arrow

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, names_files
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0, 8)
LABELS = {"_type": "ClassLabel", "names": ["cat", "dog"]}


def write(path: Path, **columns: object) -> Path:
    """Two pairs whose columns are replaced by these."""
    whole = {"image": [IMAGE, IMAGE], "caption": ["a", "b"], **columns}
    pq.write_table(pa.table(whole), path)
    return path


# -- images


def test_images_are_bytes_or_paths_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(IMAGE)
    os.mkfifo(tmp_path / "pipe")
    names = ["images/a.png", "missing.png", "pipe", "pipe:touch owned", "http://x/y.png", "images"]
    rows = [{"filepath": name, "title": "t"} for name in names]
    pairs = read_pairs(write_parquet(tmp_path / "p.parquet", rows))
    assert [pair.image for pair in pairs] == [IMAGE, *[None] * 5]
    assert "missing.png" in str(pairs[1].flaw)
    assert "regular" in str(pairs[2].flaw)
    structs = [{"bytes": IMAGE, "path": "x"}, None, {"bytes": None, "path": "images/a.png"}]
    path = write(tmp_path / "p.parquet", image=structs, caption=["a", "b", "c"])
    assert [pair.image and bytes(pair.image) for pair in read_pairs(path)] == [IMAGE, None, IMAGE]


@pytest.mark.parametrize(
    ("kind", "image"),
    [
        (pa.struct([("bytes", pa.binary()), ("path", pa.null())]), {"bytes": IMAGE}),
        (pa.struct([("bytes", pa.null()), ("path", pa.string())]), {"path": "a.png"}),
        (pa.struct([("path", pa.null()), ("bytes", pa.large_binary())]), {"bytes": b"x"}),
    ],
)
def test_a_field_of_an_image_that_is_null_in_every_row_is_missing(
    tmp_path: Path, kind: pa.DataType, image: dict[str, Any]
) -> None:
    (tmp_path / "a.png").write_bytes(IMAGE)
    whole = {"bytes": None, "path": None, **image}
    path = write(tmp_path / "p.parquet", image=pa.array([whole, None], kind))
    first, second = read_pairs(path)
    assert bytes(first.image or b"") == (image.get("bytes") or IMAGE)
    assert second.flaw
    ((source,),) = (one.files for one in find_inputs([str(path)]))
    assert names_files(source, Columns()) == ("path" in image)


# -- columns of every type

ODD: dict[str, pa.Array] = {
    "objects": pa.array([{"a": 1}, None]),
    "lists": pa.array([[1], None]),
    "maps": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
    "bytes that are not text": pa.array([b"\xff", b"\xfe"]),
}


@pytest.mark.parametrize("role", ["value", "split", "label", "caption", "image"])
@pytest.mark.parametrize("kind", ODD)
def test_a_column_that_cannot_have_a_role_is_refused(tmp_path: Path, kind: str, role: str) -> None:
    path = write(tmp_path / "p.parquet", odd=ODD[kind])
    is_image = kind == "bytes that are not text" and role == "image"
    assert bool(refusal(lambda: read_pairs(path, **{role: "odd"}), path)) != is_image


def test_a_column_that_only_has_a_usual_name_is_not_used(tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", label=ODD["objects"], id=ODD["lists"])
    assert [(pair.label, pair.source_key) for pair in read_pairs(path)] == [(None, None)] * 2
    assert refusal(lambda: read_pairs(path, label="label"), path)


MORNING = 1767596400
# By type: a column, the values that decide the task, and the texts that are kept.
VALUES: dict[str, tuple[Any, list[Any], list[str]]] = {
    "int64": (pa.array([42, None]), [42, None], ["42"]),
    "uint64": (pa.array([2**64 - 1, 5], pa.uint64()), [str(2**64 - 1), 5], [str(2**64 - 1), "5"]),
    "float": (pa.array([4.2e15, 0.5]), [4.2e15, 0.5], ["4200000000000000", "0.5"]),
    "float16": (pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0], ["1.5", "2"]),
    "decimal": (pa.array([decimal.Decimal("1.50"), None]), [1.5, None], ["1.50"]),
    "bool": (pa.array([True, None]), ["true", None], ["true"]),
    "null": (pa.nulls(2), [None, None], []),
    "date": (pa.array([dt.date(2024, 2, 1), None]), ["2024-02-01", None], ["2024-02-01"]),
    "seconds as microseconds": (
        pa.array([MORNING, None], pa.timestamp("s")).cast(pa.timestamp("us")),
        ["2026-01-05 07:00:00.000000", None],
        ["2026-01-05 07:00:00"],
    ),
    "milliseconds": (
        pa.array([MORNING * 1000 + 5, None], pa.timestamp("ms")),
        ["2026-01-05 07:00:00.005", None],
        ["2026-01-05 07:00:00.005"],
    ),
    "text": (pa.array(["x", ""]), ["x", ""], ["x"]),
    "dictionary": (pa.array(["x", None]).dictionary_encode(), ["x", None], ["x"]),
    "dictionary of numbers": (pa.array([7, None]).dictionary_encode(), [7, None], ["7"]),
    "view": (pa.array(["x", None], pa.string_view()), ["x", None], ["x"]),
    "bytes": (pa.array([b"x", None]), ["x", None], ["x"]),
    "extension": (
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None])),
        ["1", None],
        ["1"],
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_scalar_type_decides_the_task_and_is_kept_as_text(tmp_path: Path, kind: str) -> None:
    column, values, kept = VALUES[kind]
    path = write(tmp_path / "p.parquet", odd=column)
    pairs = read_pairs(path, value="odd", keep=("odd",))
    assert [pair.value for pair in pairs] == values
    assert [text for pair in pairs for text in pair.kept[0]] == kept


def test_lists_of_values_are_kept_as_different_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", x=[["b", "a", "b"], None], y=[[1, 2, None], [3]])
    found = [pair.kept for pair in read_pairs(path, keep=("x", "y"))]
    assert found == [(("a", "b"), ("1", "2")), ((), ("3",))]
    for kind in ("objects", "bytes that are not text"):
        write(path, odd=ODD[kind])
        assert refusal(lambda: read_pairs(path, keep=("odd",)), path)


CAPTIONS = {
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "lists": pa.array([["a", None], None]),
    "large lists": pa.array([["a", None], None], pa.large_list(pa.large_string())),
    "lists of dictionaries": pa.array(
        [["a", None], None], pa.list_(pa.dictionary(pa.int32(), pa.string()))
    ),
}


@pytest.mark.parametrize("kind", CAPTIONS)
def test_captions_of_every_type_are_read(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "p.parquet", caption=CAPTIONS[kind])
    assert [pair.captions for pair in read_pairs(path)] == [["a"], []]


def test_lists_of_captions_in_dictionaries_of_several_row_groups_are_read(tmp_path: Path) -> None:
    """Row groups end within a batch; in each, the captions refer to a dictionary of its own."""
    path = tmp_path / "p.parquet"
    captions = [[f"{7 * row % 3000:060}", f"{11 * row % 3000:060}"] for row in range(4000)]
    made = pa.table({"image": [IMAGE] * 4000, "caption": captions})
    pq.write_table(made, path, row_group_size=1600)
    stream = write_arrow(tmp_path / "p.arrow", made, rows=3000)  # read in slices of a batch
    for file in (path, stream):
        assert [pair.captions for pair in read_pairs(file)] == captions


@pytest.mark.parametrize(
    ("options", "part", "expected"),
    [
        ({"label": "n"}, "label", ["dog", None, "cat"]),
        ({"split": "n"}, "split", ["dog", None, "cat"]),
        ({"value": "n"}, "value", ["dog", None, "cat"]),
        ({"keep": ("n",)}, "kept", [(("dog",),), ((),), (("cat",),)]),
        ({"keep": ("old", "new")}, "kept", [(("cat", "dog"), ()), ((), ()), (("cat",), ("dog",))]),
    ],
)
def test_class_labels_of_any_arrow_schema_are_named(
    tmp_path: Path, options: dict[str, Any], part: str, expected: list[Any]
) -> None:
    columns = {"n": [1, -1, 0], "old": [[1, 0], None, [0]], "new": [[], [7], [1]]}
    features = {"n": LABELS, "old": [LABELS], "new": {"_type": "List", "feature": LABELS}}
    described = json.dumps({"info": {"features": features}})
    made = pa.table({"image": [IMAGE] * 3, "text": [*"xyz"], **columns})
    pq.write_table(made.replace_schema_metadata({"huggingface": described}), tmp_path / "p.parquet")
    pairs = read_pairs(tmp_path / "p.parquet", **options)
    assert [getattr(pair, part) for pair in pairs] == expected


# -- data sets that the `datasets` library saved


def test_shards_are_read_in_the_order_of_the_state(tmp_path: Path) -> None:
    save_dataset(tmp_path / "ds", [table(9), table(2, 9)], split="train")
    pairs = read_pairs(tmp_path / "ds", value="label")
    assert [bytes(pair.image or b"") for pair in pairs] == [make_image(n, 8) for n in range(11)]
    assert [pair.place for pair in pairs] == [*range(9), 0, 1]
    assert pairs[3].captions == ["caption 0003", "another"]
    assert [pair.label for pair in pairs[:2]] == [pair.value for pair in pairs[:2]] == [*CLASSES]


def test_the_splits_of_a_dict_are_those_of_its_pairs(tmp_path: Path) -> None:
    splits = {"train": [table(4), table(2, 4)], "validation": [table(1, 6)], "test": []}
    source = save_dataset_dict(tmp_path / "ds", splits)
    pairs = read_pairs(source, split="split")
    assert [pair.split for pair in pairs] == [*["train"] * 6, "validation"]
    (found,) = find_inputs([str(source)])
    assert sum(file.start.rows or 0 for file in found.files) == 7


def test_the_split_of_one_data_set_is_in_its_state(tmp_path: Path) -> None:
    save_dataset(tmp_path / "ds", [table(1)], split="test")
    assert [pair.split for pair in read_pairs(tmp_path / "ds", split="split")] == ["test"]
    save_dataset(tmp_path / "ds", [table(1).append_column("split", pa.array(["val"]))], "test")
    assert [pair.split for pair in read_pairs(tmp_path / "ds", split="split")] == ["val"]
    save_dataset(tmp_path / "ds", [table(1)])
    with pytest.raises(BadInput, match="unknown column 'split'"):
        read_pairs(tmp_path / "ds", split="split")


# -- a task as a source: its splits, keys and kept columns come back as they were


TASK_FILES = ("train-000000.tar", "train.parquet", "train.arrow", "test-000000.tar", "test.parquet")


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
    for name in TASK_FILES:
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
