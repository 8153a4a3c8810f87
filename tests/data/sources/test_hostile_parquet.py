"""Parquet of types that no pair has, and of pages that are much larger than their files."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import refusal
from support.pair_files import read_pairs, rows

from vlcpctl.testing.tiny_stream import make_image

IMAGE = make_image(0, 8)


def write(path: Path, **columns: object) -> Path:
    """Two pairs whose columns are replaced by these."""
    whole = {"image": [IMAGE, IMAGE], "caption": ["a", "b"], **columns}
    pq.write_table(pa.table(whole), path)
    return path


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


VALUES = {
    "decimal": (pa.array([decimal.Decimal("1.50"), None]), [1.5, None]),
    "float16": (pa.array(np.array([1.5, 2], np.float16)), [1.5, 2.0]),
    "uint64": (pa.array([2**64 - 1, 5], pa.uint64()), [str(2**64 - 1), 5]),
    "bool": (pa.array([True, None]), ["true", None]),
    "null": (pa.nulls(2), [None, None]),
    "date": (pa.array([dt.date(2024, 2, 1), None]), ["2024-02-01", None]),
    "dictionary": (pa.array(["x", None]).dictionary_encode(), ["x", None]),
    "dictionary of numbers": (pa.array([7, None]).dictionary_encode(), [7, None]),
    "view": (pa.array(["x", None], pa.string_view()), ["x", None]),
    "bytes": (pa.array([b"x", None]), ["x", None]),
    "extension": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None])), ["1", None]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_scalar_type_decides_the_task(tmp_path: Path, kind: str) -> None:
    column, values = VALUES[kind]
    path = write(tmp_path / "p.parquet", odd=column)
    assert [pair.value for pair in read_pairs(path, value="odd")] == values


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
    table = pa.table({"image": [IMAGE] * 4000, "caption": captions})
    pq.write_table(table, path, row_group_size=1600)
    assert [pair.captions for pair in read_pairs(path)] == captions


FORMS: list[dict[str, object]] = [
    {},
    {"data_page_version": "2.0"},
    {"compression": "none", "use_dictionary": False},
    {"compression": "zstd", "write_page_index": True, "write_page_checksum": True},
    {"data_page_size": 100, "data_page_version": "2.0"},
    {"use_dictionary": False, "column_encoding": {"caption": "DELTA_BYTE_ARRAY"}},
    {"version": "1.0", "write_statistics": False},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_whatever_the_pages_look_like_the_pairs_are_the_same(
    tmp_path: Path, form: dict[str, object]
) -> None:
    table = pa.Table.from_pylist(rows(60))
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=17, **form)
    pairs = read_pairs(tmp_path / "p.parquet", value="group")
    assert [bytes(pair.image or b"") for pair in pairs] == table["image"].to_pylist()
    assert [pair.captions[0] for pair in pairs] == table["caption"].to_pylist()
