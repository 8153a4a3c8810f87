"""The file of pseudo texts: what is written is read, damage is found, other files are refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed.pseudo_texts import (
    SCORES,
    PseudoTextFile,
    open_pseudo_texts,
    write_pseudo_texts,
)
from vlcpctl.inspection.check import check
from vlcpctl.inspection.lineage import describe, lines

IDENTITY = {"checkpoint": "c" * 32, "buffer": "b" * 32, "count": 5, "seed": 0}


def columns(first: int, count: int) -> dict[str, Any]:
    draw = np.random.default_rng(first)
    numbers = {name: draw.random(count).astype(np.float32) for name in ("share", *SCORES)}
    keys = [f"{first + row:032x}" for row in range(count)]
    ends = np.arange(count) % 3
    embeddings = draw.normal(size=(count, 3, 2)).astype(np.float32)
    return {**numbers, "first": keys, "second": keys[::-1], "end": ends, "embeddings": embeddings}


def make_file(directory: Path, sizes: tuple[int, ...] = (2, 3)) -> Path:
    batches = (columns(10 * number, size) for number, size in enumerate(sizes))
    write_pseudo_texts(directory / "texts.parquet", batches, (3, 2), IDENTITY)
    return directory / "texts.parquet"


def changed(path: Path, **rows: Any) -> Path:
    """The file with other columns and the old metadata."""
    table = pq.read_table(path)
    metadata = pq.read_metadata(path).metadata
    for name, values in rows.items():
        place = table.schema.get_field_index(name)
        array = pa.array(values, table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), array)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return path


def test_what_is_written_is_read_in_half_precision(tmp_path: Path) -> None:
    found = open_pseudo_texts(make_file(tmp_path))
    written = [columns(0, 2), columns(10, 3)]
    expected = np.concatenate([one["embeddings"] for one in written]).astype(np.float16)
    assert np.array_equal(found.embeddings, expected)
    assert found.ends.tolist() == [0, 1, 0, 1, 2]
    assert (found.count, found.shape, found.identity) == (5, (3, 2), IDENTITY)
    assert list(found.column("first")) == [key for one in written for key in one["first"]]


def test_the_content_is_that_of_the_rows_however_they_are_grouped(tmp_path: Path) -> None:
    whole, found = columns(0, 5), []
    for name, cuts in (("one", (0, 5)), ("two", (0, 2, 5))):
        parts = [
            {key: values[start:stop] for key, values in whole.items()}
            for start, stop in itertools.pairwise(cuts)
        ]
        out = tmp_path / f"{name}.parquet"
        write_pseudo_texts(out, parts, (3, 2), IDENTITY)
        found.append(open_pseudo_texts(out))
    assert found[0].content == found[1].content == found[1].computed_content()
    assert open_pseudo_texts(make_file(tmp_path)).content != found[0].content


def test_a_whole_file_has_no_problem(tmp_path: Path) -> None:
    path = make_file(tmp_path)
    assert [*check(path, deep=False), *check(path, deep=True)] == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"second": ["x"] * 5}, "has changed since it was written: its content id differs"),
        ({"end": [0, 1, 2, 3, 0]}, "ends outside its 3 tokens"),
        ({"embeddings": [[float("inf")] * 6] * 5}, "contains non-finite embeddings"),
    ],
)
def test_damage_is_found(tmp_path: Path, rows: dict[str, Any], said: str) -> None:
    path = changed(make_file(tmp_path), **rows)
    assert list(check(path, deep=False)) == []
    assert any(said in problem for problem in check(path, deep=True))


def test_missing_rows_and_a_cut_file_are_found_at_once(tmp_path: Path) -> None:
    path = make_file(tmp_path)
    data = path.read_bytes()
    metadata = pq.read_metadata(path).metadata
    table = pq.read_table(path).slice(0, 4)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    assert list(check(path, deep=False)) == [f"{path}: has 4 texts; its metadata says 5"]
    path.write_bytes(data[:-9])
    (problem,) = check(path, deep=False)
    assert "is not a file of pseudo texts" in problem


def test_another_parquet_file_and_another_version_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(BadInput, match="make one with 'vlcpctl invert-texts'"):
        open_pseudo_texts(tmp_path / "other.parquet")
    path = make_file(tmp_path)
    name = b"vlcpctl.pseudo-texts"
    table = pq.read_table(path).replace_schema_metadata({name: b'{"schema": "x/2"}'})
    pq.write_table(table, path)
    with pytest.raises(BadInput, match="has schema 'x/2'"):
        open_pseudo_texts(path)


def test_rows_that_were_changed_are_not_used(tmp_path: Path) -> None:
    path = make_file(tmp_path)
    open_pseudo_texts(path).verify()
    changed(path, end=[0, 0, 0, 0, 0])
    with pytest.raises(BadInput, match=r"texts\.parquet has changed since .* content id differs"):
        open_pseudo_texts(path).verify()


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (b"", "not readable JSON"),
        (b'{"schema": ', "not readable JSON"),
        (b"[]", "`object`"),
        (b'{"schema": "vlcpctl.pseudo-texts/1"}', "field `content`"),
        (
            b'{"schema": "vlcpctl.pseudo-texts/1", "content": "a", "length": 0, "width": 1}',
            ".length`",
        ),
    ],
)
def test_other_metadata_is_one_line(tmp_path: Path, stored: bytes, said: str) -> None:
    table = pq.read_table(make_file(tmp_path))
    table = table.replace_schema_metadata({b"vlcpctl.pseudo-texts": stored})
    pq.write_table(table, tmp_path / "texts.parquet")
    with pytest.raises(BadInput, match=rf"texts\.parquet.*{said}") as caught:
        open_pseudo_texts(tmp_path / "texts.parquet")
    assert "\n" not in str(caught.value)


def test_its_parents_are_told(tmp_path: Path) -> None:
    text = list(lines(describe(make_file(tmp_path))))
    assert text[0] == f"pseudo texts {tmp_path}/texts.parquet"
    assert "texts 5" in text[1]
    assert text[2].strip() == f"checkpoint: {'c' * 32} (not found nearby)"
    assert text[3].strip() == f"buffer: {'b' * 32} (not found nearby)"


def test_nothing_but_the_footer_is_read_until_rows_are_asked_for(tmp_path: Path) -> None:
    found = open_pseudo_texts(make_file(tmp_path))
    found.path.unlink()
    assert isinstance(found, PseudoTextFile)
    with pytest.raises(BadInput, match="cannot read"):
        _ = found.embeddings
