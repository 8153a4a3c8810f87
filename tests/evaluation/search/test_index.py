"""Vectors that are gathered from several arrays when they are read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search import index
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Gallery
from vlcpctl.evaluation.search.index import Gathered
from vlcpctl.evaluation.search.queries import both_ways
from vlcpctl.evaluation.search.ranks import find_ranks

MEGABYTE = 1 << 20
# Searches with 200 queries of each direction in as many images and texts as argv[1] says, in files
# of argv[2], and prints by how many bytes its anonymous memory rose at its peak.
SEARCH = """
import sys, threading
from pathlib import Path

import numpy as np
import torch

from vlcpctl.data.precomputed.vector_files import Matrix
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Gallery
from vlcpctl.evaluation.search.index import Gathered
from vlcpctl.evaluation.search.queries import both_ways
from vlcpctl.evaluation.search.ranks import find_ranks

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

def search(rows):
    pairs = np.stack([np.arange(rows)] * 2, axis=1)
    some = [Gathered([(one, np.arange(rows)[:-1]), (one, np.array([rows - 1]))]) for one in sides]
    for queries in both_ways(Gallery(*some, pairs)).values():
        own = queries.at(np.arange(200))
        for backend, is_exact in (("torch", True), ("torch", False), ("faiss", False)):
            find_ranks(own, choose(backend, "cpu"), 10, is_exact=is_exact)

torch.set_num_threads(1)
rows, directory = int(sys.argv[1]), Path(sys.argv[2])
sides = [Matrix(directory / f"{name}.npy", np.float32).mapped() for name in ("images", "texts")]
search(300)
before, peak, is_over = anonymous(), 0, threading.Event()
def watch():
    global peak
    while not is_over.wait(0.002):
        peak = max(peak, anonymous() - before)
watching = threading.Thread(target=watch)
watching.start()
search(rows)
is_over.set()
watching.join()
print(peak)
"""


def arrays(seed: int) -> tuple[Gathered, np.ndarray]:
    """Some arrays, some of them gathered again, and what they hold."""
    random = np.random.default_rng(seed)
    parts, wanted = [], []
    for _ in range(random.integers(1, 5)):
        array = random.standard_normal((random.integers(0, 6), 3)).astype(np.float32)
        rows = random.integers(0, len(array), random.integers(0, 5)) if len(array) else None
        if rows is not None and random.random() < 0.4:
            array = (one := Gathered([(array, rows), (array, None)]))[:]
            parts.append((one, None))
            wanted.append(array)
            continue
        rows = rows if random.random() < 0.5 else None
        parts.append((array, rows))
        wanted.append(array if rows is None else array[rows])
    return Gathered(parts), np.concatenate(wanted)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 12))
def test_gathered_rows_are_those_of_the_arrays(seed: int, first: int, end: int) -> None:
    gathered, wanted = arrays(seed)
    assert (len(gathered), gathered.shape) == (len(wanted), wanted.shape)
    assert np.array_equal(gathered[first:end], wanted[first:end])
    if len(wanted):
        rows = np.random.default_rng(seed).integers(0, len(wanted), first)
        assert np.array_equal(gathered[rows], wanted[rows])


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6))
def test_blocks_are_all_rows_and_small_where_they_are_copied(seed: int) -> None:
    gathered, wanted = arrays(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_BLOCK_VALUES", 6)
        blocks = list(gathered.blocks())
    assert [start for start, _ in blocks] == np.cumsum([0, *map(len, dict(blocks).values())])[
        :-1
    ].tolist()
    assert np.array_equal(np.concatenate([wanted[:0], *(one for _, one in blocks)]), wanted)
    whole = {id(array) for array in _whole_arrays(gathered)}
    assert all(len(block) <= 2 or id(block) in whole for _, block in blocks)


def _whole_arrays(gathered: Gathered) -> Iterator[np.ndarray]:
    for array, rows in gathered._parts:
        if isinstance(array, Gathered):
            yield from _whole_arrays(array)
        elif rows is None:
            yield array


def test_one_large_array_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_BLOCK_VALUES", 5 * 3)
    array = np.ones((5, 3), dtype=np.float32)
    gathered = Gathered([(array, np.arange(5)), (array, None)])
    assert np.shares_memory(gathered[1:4], array)
    assert all(np.shares_memory(block, array) for _, block in gathered.blocks())


def test_small_arrays_are_copied_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_BLOCK_VALUES", 4 * 3)  # of four rows
    small, large = np.ones((1, 3), np.float32), np.ones((6, 3), np.float32)
    gathered = Gathered([*[(small, None)] * 5, (large, None), *[(small, None)] * 3])
    blocks = [(start, len(block)) for start, block in gathered.blocks()]
    assert blocks == [(0, 4), (4, 1), (5, 6), (11, 3)]


@pytest.mark.parametrize(
    ("backend", "is_exact"), [("faiss", False), ("torch", False), ("torch", True)]
)
def test_a_search_in_several_arrays_is_that_in_one(
    monkeypatch: pytest.MonkeyPatch, backend: str, is_exact: bool
) -> None:
    monkeypatch.setattr(index, "_BLOCK_VALUES", 8 * 7)  # blocks of 7 rows are copied
    random = np.random.default_rng(0)
    vectors = random.standard_normal((60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    of_all = np.arange(60)
    parts = [(vectors, of_all[:5]), (vectors[5:31], None), (vectors, of_all[31:])]
    pairs = np.stack([of_all, random.permutation(60)], axis=1)
    galleries = Gallery(vectors, vectors, pairs), Gallery(Gathered(parts), Gathered(parts), pairs)
    one, several = (
        find_ranks(both_ways(gallery)["i2t"], choose(backend, "cpu"), 10, is_exact=is_exact)
        for gallery in galleries
    )
    assert one.worst.max() >= 10
    for whole, gathered in zip(one.arrays[:3], several.arrays[:3], strict=True):
        assert np.array_equal(whole, gathered)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what is anonymous")
def test_memory_of_a_search_does_not_grow_with_the_embeddings(tmp_path: Path) -> None:
    peaks = []
    for rows in (20_000, 60_000):
        random = np.random.default_rng(0)
        for name in ("images", "texts"):
            vectors = random.standard_normal((rows, 512), dtype=np.float32)
            np.save(tmp_path / f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1)[:, None])
        command = [sys.executable, "-c", SEARCH, str(rows), str(tmp_path)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
    # Those of one side grow by 78 MB; what is known of each row grows by a few bytes.
    assert peaks[1] - peaks[0] < 40 * MEGABYTE, peaks
