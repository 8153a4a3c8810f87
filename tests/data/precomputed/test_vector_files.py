"""Files of vectors: any rows at random, the same bytes however many parts, damage refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed import vector_files
from vlcpctl.data.precomputed.vector_files import VectorFile, Vectors, join_vectors, write_vectors

ROWS, WIDTH = 50, 5
VALUES = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "ROWS_PER_GROUP", 7)


def rows(start: int, stop: int) -> Vectors:
    keys = [f"{row // 3:032x}" for row in range(start, stop)]
    return Vectors(keys, np.arange(start, stop) % 3, VALUES[start:stop])


def joined(directory: Path, *ends: int) -> Path:
    parts = []
    for start, stop in zip((0, *ends), (*ends, ROWS), strict=True):
        parts.append(directory / f"part-{start}.parquet")
        write_vectors(parts[-1], rows(start, stop), "view")
    out = directory / f"all-{'-'.join(map(str, ends))}.parquet"
    join_vectors(out, parts, "view")
    return out


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "v.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_files, "ROWS_PER_GROUP", 7)
        write_vectors(path, rows(0, ROWS), "view")
    return path


@given(st.lists(st.integers(0, ROWS - 1), max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_rows_come_in_the_order_asked_for(file: Path, wanted: list[int]) -> None:
    found = VectorFile(file, "view").take(np.array(wanted, dtype=np.int64))
    assert np.array_equal(found, VALUES[wanted])


def test_other_readers_find_the_same(file: Path) -> None:
    table = pq.read_table(file)
    assert table.column_names == ["key", "view", "embedding"]
    assert np.array_equal(np.array(table["embedding"].to_pylist(), dtype=np.float32), VALUES)
    assert len(pq.ParquetFile(file).metadata.to_dict()["row_groups"]) == 8
    opened = VectorFile(file, "view")
    assert opened.keys == table["key"].to_pylist()
    assert opened.numbers.tolist() == table["view"].to_pylist()


def test_long_groups_of_wide_vectors_are_one_page_each(tmp_path: Path) -> None:
    """Their megabytes are more than Parquet's usual page holds."""
    wide = np.random.default_rng(1).normal(size=(1500, 700)).astype(np.float32)
    numbers = np.zeros(1500, dtype=np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_files, "ROWS_PER_GROUP", 1024)
        write_vectors(tmp_path / "w", Vectors([f"{n}" for n in numbers], numbers, wide), "view")
    some = np.array([1499, 0, 1023, 1024, 600])
    assert np.array_equal(VectorFile(tmp_path / "w", "view").take(some), wide[some])


def test_parts_join_to_the_same_id_wherever_they_are_cut(tmp_path: Path) -> None:
    cuts = [(20,), (1, 30), ()]
    opened = [VectorFile(joined(tmp_path, *cut), "view") for cut in cuts]
    assert len({one.content() for one in opened}) == 1
    for one in opened:
        assert np.array_equal(one.take(np.arange(ROWS)), VALUES)
        assert len(one) == ROWS


def test_another_value_key_or_number_is_another_id(file: Path, tmp_path: Path) -> None:
    whole = rows(0, ROWS)
    changed = VALUES.copy()
    changed[3, 2] += 1e-6
    others = [
        Vectors(whole.keys, whole.numbers_N, changed),
        Vectors([*whole.keys[:-1], "f" * 32], whole.numbers_N, VALUES),
        Vectors(whole.keys, whole.numbers_N[::-1], VALUES),
    ]
    ids = {VectorFile(file, "view").content()}
    for number, other in enumerate(others):
        write_vectors(tmp_path / f"{number}", other, "view")
        ids.add(VectorFile(tmp_path / f"{number}", "view").content())
    assert len(ids) == 4


@pytest.mark.parametrize(
    "how", [{}, {"compression": "none"}, {"compression": "none", "use_dictionary": False}]
)
def test_a_file_that_another_program_wrote_anew_is_refused(
    file: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    pq.write_table(pq.read_table(file), tmp_path / "again", data_page_size=64, **how)
    with pytest.raises(BadInput, match="was rewritten by another program"):
        VectorFile(tmp_path / "again", "view")


def test_damage_is_an_error_that_names_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(file.read_bytes()[:-40])
    with pytest.raises(BadInput, match=r"cannot read \S+cut:"):
        VectorFile(tmp_path / "cut", "view")
    with pytest.raises(BadInput, match=r"cannot read \S+none:"):
        VectorFile(tmp_path / "none", "view")
    pq.write_table(pq.read_table(file, columns=["key"]), tmp_path / "bare")
    with pytest.raises(BadInput, match=r"cannot read \S+bare:"):
        VectorFile(tmp_path / "bare", "view")
    data = bytearray(file.read_bytes())
    place = data.find(VALUES[20].tobytes())
    data[place] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    opened = VectorFile(tmp_path / "flipped", "view")  # neither the first nor the last group
    with pytest.raises(BadInput, match=r"cannot read \S+flipped:"):
        opened.content()
