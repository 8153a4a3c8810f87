"""Files of pseudo texts and vectors that lie: an end, and one line that names the file."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import mutated, refusal

from vlcpctl.data.precomputed.pseudo_texts import (
    METADATA,
    SCHEMA,
    open_pseudo_texts,
    write_pseudo_texts,
)
from vlcpctl.data.precomputed.vector_files import VectorFile, join_vectors, read_vectors

IDENTITY = {"checkpoint": "c" * 32, "buffer": "b" * 32, "count": 4, "seed": 0}
WHOLE = {"schema": SCHEMA, "content": "c", "identity": IDENTITY, "length": 3, "width": 2}
SCORES = importlib.import_module("vlcpctl.data.precomputed.pseudo_texts").SCORES


def make(path: Path) -> Path:
    numbers = {name: np.zeros(4, np.float32) for name in ("share", *SCORES)}
    texts = {"first": list("abcd"), "second": list("abcd"), "end": np.arange(4) % 3}
    columns = {**numbers, **texts, "embeddings": np.zeros((4, 3, 2))}
    write_pseudo_texts(path, [columns], (3, 2), IDENTITY)
    return path


def read(path: Path) -> object:
    file = open_pseudo_texts(path)
    return file.embeddings, file.ends, file.column("share"), file.computed_content()


CHANGES: dict[str, Any] = {
    "a list": "[]",
    "not JSON": "{",
    "not UTF-8": b"\xff",
    "a surrogate": '{"schema": "\\ud800"}',
    "another schema": {"schema": "x" * 10**5},
    "a schema that is a list": {"schema": []},
    "no content": {"content": None},
    "an identity that is a list": {"identity": []},
    "no count": {"identity": {}},
    "a length below zero": {"length": -1},
    "a length that is text": {"length": "3"},
    "a huge width": {"width": 2**62},
    "a large width": {"width": 10**6},
    "another width": {"width": 3},
}


@pytest.mark.parametrize("name", CHANGES)
def test_metadata_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    path, change = make(tmp_path / "t.parquet"), CHANGES[name]
    text = json.dumps({**WHOLE, **change}) if isinstance(change, dict) else change
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA: text})
    assert refusal(lambda: read(path), path)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "t.parquet")
    table = pq.read_table(path)
    struct = pa.array([{"a": 1}] * 4)
    for other in (table.drop_columns(["end"]), table.set_column(0, "first", struct)):
        with pq.ParquetWriter(path, other.schema) as writer:
            writer.write_table(other)
            writer.add_key_value_metadata({METADATA: json.dumps(WHOLE)})
        assert refusal(lambda: read(path), path)


def test_pipes_and_directories_are_refused(tmp_path: Path) -> None:
    for name in ("t.parquet", "v.npy"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "d.npy").mkdir()
    pipe, array = tmp_path / "t.parquet", tmp_path / "v.npy"
    assert refusal(lambda: open_pseudo_texts(pipe), pipe)
    assert refusal(lambda: VectorFile(pipe, "view"), pipe)
    assert refusal(lambda: read_vectors(array, np.float32), array)
    assert refusal(lambda: read_vectors(tmp_path / "d.npy", np.float32), tmp_path / "d.npy")


HEADERS = [
    b"(" * 5000,
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2**70, 2)}",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"9" * 4000 + b", 2)}",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}",
    b"\xff" * 50,
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: str(header[:70]))
def test_an_array_with_a_header_that_lies_is_refused(tmp_path: Path, header: bytes) -> None:
    text = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    path = tmp_path / "v.npy"
    path.write_bytes(start + bytes(16))
    assert refusal(lambda: read_vectors(path, np.float32), path)


def check_any_file(directory: Path, count: int) -> None:
    """Files with some bytes changed end in values or in one line."""
    draw = np.random.default_rng(0)
    texts = make(directory / "t.parquet")
    np.save(directory / "part.npy", np.ones((4, 2), np.float32))
    join_vectors(
        directory / "v.parquet", "view", list("abcd"), np.ones(4, int), [directory / "part.npy"], 2
    )
    whole = {name: (directory / name).read_bytes() for name in ("t.parquet", "v.parquet", "v.npy")}
    for number in range(count):
        name = list(whole)[number % 3]
        (directory / name).write_bytes(mutated(whole[name], draw))
        if name == "t.parquet":
            refusal(lambda: read(texts), texts)
        else:
            vectors = directory / ("v" if name == "v.npy" else name)
            refusal(lambda: VectorFile(directory / "v.parquet", "view").content(), vectors)
        (directory / name).write_bytes(whole[name])


def test_any_file_ends_in_values_or_one_line(tmp_path: Path) -> None:
    check_any_file(tmp_path, 150)


@pytest.mark.slow
def test_ten_thousand_files_end_in_values_or_one_line(tmp_path: Path) -> None:
    check_any_file(tmp_path, 10_000)
