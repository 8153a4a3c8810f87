"""Files of vectors: any rows at random, the same bytes however many parts, damage refused."""

from __future__ import annotations

import io
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed import vector_files
from vlcpctl.data.precomputed.vector_files import (
    VectorFile,
    join_vectors,
    read_vectors,
    write_vectors,
)

KEYS = [f"{sample:032x}" for sample in range(20)]
COUNTS = np.array([1, 4] * 10)
ROWS, WIDTH = 50, 5
VALUES = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
ID_BEFORE = (
    "7dd584022063fddcd5b370c5a2a66640"
    "d890fb3ad31b7b519eb03095fb79c5a9"
    "c20ecce4a2241f4e2d1bf73a18265fa0"
)


@pytest.fixture(scope="module", autouse=True)
def _few_rows_at_once() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_files, "_ROWS_AT_ONCE", 7)
        yield


def joined(
    directory: Path, *ends: int, keys: list[str] = KEYS, values: np.ndarray = VALUES
) -> VectorFile:
    """The values joined from parts cut at these rows."""
    directory.mkdir(exist_ok=True)
    parts = []
    for start, stop in zip((0, *ends), (*ends, ROWS), strict=True):
        parts.append(directory / f"part-{start}.npy")
        write_vectors(parts[-1], [values[start:stop]], (stop - start, WIDTH), np.float32)
    found = join_vectors(directory / "v.parquet", "view", keys, COUNTS, parts, WIDTH)
    opened = VectorFile(directory / "v.parquet", "view")
    assert found == (ROWS, opened.content())
    return opened


def all_of(file: VectorFile) -> np.ndarray:
    return file.vectors(np.arange(len(file)))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> VectorFile:
    return joined(tmp_path_factory.mktemp("vectors"), 20)


@given(st.lists(st.integers(0, ROWS - 1), max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_rows_come_in_the_order_asked_for(file: VectorFile, wanted: list[int]) -> None:
    found = file.vectors(np.array(wanted, dtype=np.int64))
    assert np.array_equal(found, VALUES[wanted])
    assert found.dtype == np.float32
    assert found.shape == (len(wanted), WIDTH)
    assert found.flags.writeable


def test_other_programs_find_the_same(file: VectorFile) -> None:
    table = pq.read_table(file.path)
    assert table.column_names == ["key", "view"]
    assert np.array_equal(np.load(file.path.with_suffix(".npy")), VALUES)
    owners = np.repeat(np.arange(len(KEYS)), COUNTS)
    assert file.keys == table["key"].to_pylist() == [KEYS[owner] for owner in owners]
    assert file.numbers.tolist() == table["view"].to_pylist() == [0, 0, 1, 2, 3] * 10
    assert (len(file), file.width) == (ROWS, WIDTH)


def test_a_file_is_what_numpy_saves(file: VectorFile, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    assert file.path.with_suffix(".npy").read_bytes() == (tmp_path / "v.npy").read_bytes()


def test_parts_join_to_the_same_bytes_wherever_they_are_cut(
    file: VectorFile, tmp_path: Path
) -> None:
    for number, cut in enumerate([(1, 30), (), (7, 8, 49)]):
        other = joined(tmp_path / f"{number}", *cut)
        assert other.path.read_bytes() == file.path.read_bytes()
        assert np.array_equal(all_of(other), VALUES)


def test_the_id_is_what_it_was(file: VectorFile) -> None:
    """Targets computed again have the same identity, so runs trained with the old ones resume."""
    assert file.content() == ID_BEFORE


def test_another_value_key_or_order_is_another_id(file: VectorFile, tmp_path: Path) -> None:
    changed = VALUES.copy()
    changed[3, 2] += 1e-6
    ids = {
        file.content(),
        joined(tmp_path / "value", values=changed).content(),
        joined(tmp_path / "key", keys=[*KEYS[:-1], "f" * 32]).content(),
        joined(tmp_path / "order", values=VALUES[::-1]).content(),
    }
    assert len(ids) == 4


def test_a_spawned_worker_opens_the_file_again(file: VectorFile) -> None:
    sent = pickle.dumps(file)
    assert len(sent) < 1000
    assert np.array_equal(all_of(pickle.loads(sent)), VALUES)


def saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, values=VALUES)
    return file.getvalue()


WHOLE = saved(VALUES)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "EOF"),
        (WHOLE[:40], "EOF"),
        (WHOLE[:-1], "its size does not match its header"),
        (WHOLE + b"x", "its size does not match its header"),
        (zipped(), "magic string"),
        (pickle.dumps(VALUES), "magic string"),
        (saved(np.array([{}, []], dtype=object)), "has |O values"),
        (WHOLE.replace(b"(50,", b"(5{,"), ""),
        (WHOLE.replace(b"(50, 5)", b"(-5, 5)"), "its size does not match its header"),
        (WHOLE.replace(b"(50, 5)", b"(-1,-1)"), "its size does not match its header"),
        (b"\x93NUMPY\x03" + WHOLE[7:], "its format is version (3, 0)"),
        (saved(VALUES.astype(np.float16)), "has <f2 values of shape (50, 5) in C order, not a"),
        (saved(VALUES.astype(">f4")), "has >f4 values"),
        (saved(np.asfortranarray(VALUES)), "in Fortran order, not a matrix of float32 in C order"),
        (saved(VALUES.reshape(-1)), "of shape (250,)"),
        (saved(VALUES.reshape(5, 10, 5)), "of shape (5, 10, 5)"),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "v.npy").write_bytes(data)
    with pytest.raises(BadInput) as error:
        read_vectors(tmp_path / "v.npy", np.float32)
    assert str(tmp_path / "v.npy") in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@given(st.lists(st.tuples(st.integers(0, 127), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_no_damage_of_the_header_is_a_traceback(
    file: VectorFile, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(WHOLE)
    for place, byte in changes:
        data[place] = byte
    path = file.path.with_name("damaged.npy")
    path.write_bytes(data)
    with suppress(BadInput):
        assert read_vectors(path, np.float32).dtype == np.float32


def test_a_file_that_is_cut_short_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    """Memory-mapped, it would end the process with SIGBUS."""
    opened = joined(tmp_path)
    path = opened.path.with_suffix(".npy")
    os.truncate(path, path.stat().st_size - 4096 // 16)
    assert np.array_equal(opened.vectors(np.array([0])), VALUES[:1])
    for read in (all_of, VectorFile.content):
        with pytest.raises(BadInput, match=r"v\.npy was cut short while it was being read"):
            read(opened)


def test_vectors_without_rows_are_a_matrix(tmp_path: Path) -> None:
    write_vectors(tmp_path / "v.npy", [], (0, WIDTH), np.float32)
    assert read_vectors(tmp_path / "v.npy", np.float32).shape == (0, WIDTH)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.npy")
    with pytest.raises(BadInput, match=r"v\.npy: it is not a regular file"):
        read_vectors(tmp_path / "v.npy", np.float32)


def test_a_pair_of_files_must_fit(tmp_path: Path) -> None:
    opened = joined(tmp_path)
    table, vectors = opened.path, opened.path.with_suffix(".npy")
    whole = table.read_bytes()

    def refuses(match: str) -> None:
        with pytest.raises(BadInput, match=match):
            VectorFile(table, "view").content()

    table.write_bytes(whole[:-40])
    refuses(r"cannot read \S+v.parquet:")
    for columns in (["key"], ["view"]):
        pq.write_table(pq.read_table(io.BytesIO(whole), columns=columns), table)
        refuses(r"cannot read \S+v.parquet:")
    pq.write_table(pa.table({"key": KEYS, "view": ["x"] * len(KEYS)}), table)
    refuses(r"cannot read \S+v.parquet:")
    damaged = bytearray(whole)
    damaged[whole.find(b"00000000000000000000000000000")] ^= 1
    table.write_bytes(damaged)
    refuses(r"cannot read \S+v.parquet:")
    pq.write_table(pq.read_table(io.BytesIO(whole))[1:], table)
    refuses(r"v.npy has 50 rows, but \S+v.parquet has 49; run 'vlcpctl check'")
    table.write_bytes(whole)
    vectors.unlink()
    refuses(r"cannot read \S+v.npy:")
    table.unlink()
    refuses(r"cannot read \S+v.parquet:")
