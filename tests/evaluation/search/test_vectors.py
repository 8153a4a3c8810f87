"""Vectors that are gathered from several arrays when they are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search.vectors import Gathered

MEGABYTE = 1 << 20
# Searches with 200 queries of each direction in as many images and texts as argv[1] says, in files
# of argv[2], and prints by how many bytes its anonymous memory rose at its peak.
SEARCH = """
import sys, threading
from pathlib import Path

import numpy as np
import torch

from vlcpctl.data.precomputed.store import VectorFile
from vlcpctl.evaluation.search.count import exact_ranks, ranks
from vlcpctl.evaluation.search.galleries import Embeddings, both_ways
from vlcpctl.evaluation.search.vectors import Gathered

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))

def search(rows):
    pairs = np.stack([np.arange(rows)] * 2, axis=1)
    some = [Gathered([(one, np.arange(rows)[:-1]), (one, np.array([rows - 1]))]) for one in sides]
    both = Embeddings(*some)
    ends = np.array([[rows, rows]])
    for search in both_ways(both, both, pairs, 0 * pairs[:, 0], ends).values():
        own = search.of_rows(np.arange(200))
        ranks(own, "cpu", 10), exact_ranks(own, "cpu")

torch.set_num_threads(1)
rows, directory = int(sys.argv[1]), Path(sys.argv[2])
sides = [VectorFile(directory / f"{name}.npy", np.float32).mapped() for name in ("images", "texts")]
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


def test_rows_of_one_array_in_order_are_not_copied() -> None:
    array = np.ones((5, 3), dtype=np.float32)
    assert np.shares_memory(Gathered([(array, np.arange(5)), (array, None)])[1:4], array)


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
