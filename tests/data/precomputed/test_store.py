"""Vectors on disk: any rows at random, the same bytes however many blocks, damage refused."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import refusal

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed import store as module
from vlcpctl.data.precomputed.store import Store, VectorFile, digest_of

KEYS = [f"{sample:032x}" for sample in range(20)]
COUNTS = [1, 4] * 10
ROWS, WIDTH = 50, 5
VALUES = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
COLUMNS = pa.schema([pa.field("key", pa.string()), pa.field("captions", pa.int32())])
TABLE = pa.table([KEYS, COUNTS], schema=COLUMNS)
TEXTS, IMAGES = VALUES, VALUES[:40] + 1  # two views of each image


@pytest.fixture(scope="module", autouse=True)
def _few_rows_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_AT_ONCE", 7)
        yield


def written(directory: Path, *ends: int) -> Store:
    """A store whose files are written from blocks that end at these rows."""
    directory.mkdir(exist_ok=True)
    store = Store(directory, "v.parquet", {"i.npy": 2, "t.npy": "captions"}, np.float32, COLUMNS)
    blocks = {"i.npy": np.split(IMAGES, ends), "t.npy": np.split(TEXTS, ends)}
    store.write(TABLE, blocks, WIDTH)
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return written(tmp_path_factory.mktemp("vectors"), 20)


@given(st.lists(st.integers(0, ROWS - 1), max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_rows_come_in_the_order_asked_for(store: Store, wanted: list[int]) -> None:
    found = store.vectors("t.npy")[np.array(wanted, dtype=np.int64)]
    assert np.array_equal(found, VALUES[wanted])
    assert found.dtype == np.float32
    assert found.shape == (len(wanted), WIDTH)
    assert found.flags.writeable


def test_other_programs_find_the_same(store: Store, tmp_path: Path) -> None:
    assert pq.read_table(store.directory / "v.parquet").to_pydict() == TABLE.to_pydict()
    np.save(tmp_path / "t.npy", TEXTS)
    assert (store.directory / "t.npy").read_bytes() == (tmp_path / "t.npy").read_bytes()
    assert np.array_equal(np.load(store.directory / "i.npy"), IMAGES)
    assert store.samples() == KEYS


@pytest.mark.parametrize("ends", [(1, 30), (), (7, 8, 39)])
def test_blocks_join_to_the_same_bytes_wherever_they_end(
    store: Store, tmp_path: Path, ends: tuple[int, ...]
) -> None:
    other = written(tmp_path, *ends)
    for name in ("v.parquet", *other.files):
        assert (tmp_path / name).read_bytes() == (store.directory / name).read_bytes()
    assert np.array_equal(other.vectors("t.npy").all(), TEXTS)


def test_the_rows_of_a_sample_go_with_it(store: Store, tmp_path: Path) -> None:
    other = store.write_without(tmp_path, {KEYS[1], KEYS[18], "unknown"})
    kept = [row for row, key in enumerate(KEYS) if row not in {1, 18}]
    assert other.samples() == [KEYS[row] for row in kept]
    owners = np.repeat(np.arange(20), COUNTS)
    assert np.array_equal(other.vectors("t.npy").all(), TEXTS[np.isin(owners, kept)])
    assert np.array_equal(other.vectors("i.npy").all(), IMAGES[np.isin(np.arange(40) // 2, kept)])


def test_a_digest_is_of_the_values(store: Store) -> None:
    halves = pa.concat_tables([TABLE[:3], TABLE[3:]])
    assert digest_of(halves) == digest_of(store.rows()) == digest_of(TABLE)
    assert len({digest_of(one) for one in (TABLE, TABLE[1:], TABLE.take([*range(20)][::-1]))}) == 3


def test_a_spawned_worker_opens_the_file_again(store: Store) -> None:
    sent = pickle.dumps(store.vectors("t.npy"))
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent).all(), TEXTS)


def saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def header(text: bytes) -> bytes:
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16)


WHOLE = saved(VALUES)
SHAPE = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s, 2)}"
DAMAGES = {
    "nothing": b"",
    "a part of the header": WHOLE[:40],
    "cut short": WHOLE[:-1],
    "longer": WHOLE + b"x",
    "a pickle": pickle.dumps(VALUES),
    "objects": saved(np.array([{}, []], dtype=object)),
    "no tuple": WHOLE.replace(b"(50,", b"(5{,"),
    "below zero": WHOLE.replace(b"(50, 5)", b"(-1,-1)"),
    "another version": b"\x93NUMPY\x03" + WHOLE[7:],
    "half precision": saved(VALUES.astype(np.float16)),
    "other bytes": saved(VALUES.astype(">f4")),
    "Fortran order": saved(np.asfortranarray(VALUES)),
    "no matrix": saved(VALUES.reshape(-1)),
    "deep": header(b"(" * 5000),
    "huge": header((SHAPE % "2**70").encode()),
    "digits": header((SHAPE % ("9" * 4000)).encode()),
    "fields": header(b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2)}"),
    "no text": header(b"\xff" * 50),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "v.npy"
    path.write_bytes(DAMAGES[name])
    assert refusal(lambda: VectorFile(path, np.float32), path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("t.npy", "v.parquet"):
        os.mkfifo(tmp_path / name)
    store = Store(tmp_path, "v.parquet", {}, np.float32, COLUMNS)
    assert refusal(lambda: VectorFile(tmp_path / "t.npy", np.float32), tmp_path / "t.npy")
    assert refusal(store.rows, tmp_path / "v.parquet")


def test_a_file_that_is_cut_short_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    """Memory-mapped, it would end the process with SIGBUS."""
    opened = written(tmp_path).vectors("t.npy")
    os.truncate(opened.path, opened.path.stat().st_size - 256)
    assert np.array_equal(opened[np.array([0])], VALUES[:1])
    with pytest.raises(BadInput, match=r"t\.npy was cut short while it was being read"):
        opened.all()


def test_the_files_must_fit(tmp_path: Path) -> None:
    store, table = written(tmp_path), tmp_path / "v.parquet"
    whole = table.read_bytes()
    damaged = bytearray(whole)
    damaged[whole.find(b"00000000000000000000000000000")] ^= 1
    for data in (whole[:-40], bytes(damaged)):
        table.write_bytes(data)
        assert refusal(store.rows, table)
    for other in (TABLE.select(["key"]), pa.table({"key": KEYS, "captions": ["x"] * 20})):
        pq.write_table(other, table)
        assert refusal(store.rows, table)
    pq.write_table(TABLE[1:], table)
    for name, rows in (("t.npy", 49), ("i.npy", 38)):
        with pytest.raises(BadInput, match=rf"{name} has \d+ rows, but \S+v.parquet has {rows}"):
            store.vectors(name)
