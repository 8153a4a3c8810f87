"""FAISS on GPUs: shards, parts that fit, torch's memory in place; with a FAISS that pretends."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vlcpctl.evaluation.search import faiss_index
from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.faiss_index import FaissCpuIndex, FaissGpuIndex, Gpu, open_faiss
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.queries import Queries
from vlcpctl.evaluation.search.ranks import search_ranks

DRAW = np.random.default_rng(0)
GALLERY = DRAW.standard_normal((101, 6)).astype(np.float32)
QUERIES = DRAW.standard_normal((13, 6)).astype(np.float32)


def array_at(address: int, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    """The memory at an address, without a copy."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    buffer = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(buffer, dtype=kind).reshape(shape)


class FakeGpus:
    """What FAISS would do on GPUs, done on the CPU; notes each search as (GPU, rows, k)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.searches: list[tuple[int, int, int]] = []
        self.free = 1 << 30

    def knn(self, resources: Any, given: Any) -> None:
        assert given.metric == faiss_index.faiss.METRIC_INNER_PRODUCT
        assert given.k <= given.numVectors
        gallery = array_at(given.vectors, (given.numVectors, given.dims), np.float32)
        queries = array_at(given.queries, (given.numQueries, given.dims), np.float32)
        scores, ids = FaissCpuIndex(gallery).search(queries, given.k)
        shape = (given.numQueries, given.k)
        array_at(given.outDistances, shape, np.float32)[:] = scores
        array_at(given.outIndices, shape, np.int64)[:] = ids
        self.searches.append((given.device, given.numVectors, given.k))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpus]:
    """Three GPUs."""
    found = FakeGpus(3)
    made: list[object] = []

    def resources() -> object:
        made.append(SimpleNamespace(setTempMemory=lambda size: None))
        return made[-1]

    faiss = faiss_index.faiss
    monkeypatch.setattr(faiss, "StandardGpuResources", resources, raising=False)
    monkeypatch.setattr(faiss, "GpuDistanceParams", SimpleNamespace, raising=False)
    monkeypatch.setattr(faiss, "bfKnn", found.knn, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: found.count)
    for name in ("float", "void"):
        monkeypatch.setattr(faiss, f"cast_integer_to_{name}_ptr", lambda address: address)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found.count)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (found.free, 1 << 34))
    monkeypatch.setattr(Gpu, "device", torch.device("cpu"))
    faiss_index._gpu.cache_clear()
    yield found
    assert len(made) <= found.count  # galleries share them
    faiss_index._gpu.cache_clear()


@pytest.mark.parametrize("k", [1, 5, 40, 101])
@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_shards_give_the_ranks_of_one_search(fake: FakeGpus, gpus: int, k: int) -> None:
    fake.count = gpus
    index = open_faiss(GALLERY, "auto")
    assert isinstance(index, FaissGpuIndex)
    scores, ids = index.search(QUERIES, k)
    wanted, rows = FaissCpuIndex(GALLERY).search(QUERIES, k)
    assert np.array_equal(ids, rows)
    assert np.allclose(scores, wanted, atol=1e-6)
    assert {gpu for gpu, _, _ in fake.searches} == set(range(gpus))
    assert sum(size for _, size, _ in fake.searches) == len(GALLERY)


def test_a_gallery_that_does_not_fit_is_searched_in_parts(fake: FakeGpus) -> None:
    fake.count, fake.free = 2, 2 * 10 * GALLERY[:1].nbytes  # half of it is for ten rows
    scores, ids = open_faiss(GALLERY, "cuda").search(QUERIES, 12)
    wanted, rows = FaissCpuIndex(GALLERY).search(QUERIES, 12)
    assert np.array_equal(ids, rows)
    assert np.allclose(scores, wanted, atol=1e-6)
    assert max(size for _, size, _ in fake.searches) == 10
    assert len(fake.searches) == 6 + 5  # 51 and 50 rows


def test_one_gpu_can_be_named(fake: FakeGpus) -> None:
    open_faiss(GALLERY, "cuda:1").search(QUERIES, 3)
    assert [gpu for gpu, _, _ in fake.searches] == [1]


def test_few_rows_take_few_gpus(fake: FakeGpus) -> None:
    _, ids = open_faiss(GALLERY[:2], "cuda").search(QUERIES, 2)
    assert np.array_equal(ids, FaissCpuIndex(GALLERY[:2]).search(QUERIES, 2)[1])
    assert len(fake.searches) == 2


def test_more_candidates_than_a_gpu_finds_are_searched_on_the_cpu(
    fake: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "_GPU_MAX_K", 4)
    _, ids = open_faiss(GALLERY, "cuda").search(QUERIES, 5)
    assert np.array_equal(ids, FaissCpuIndex(GALLERY).search(QUERIES, 5)[1])
    assert not fake.searches


def test_the_cpu_is_used_if_it_is_the_device(fake: FakeGpus) -> None:
    assert isinstance(open_faiss(GALLERY, "cpu"), FaissCpuIndex)


def test_without_gpu_support_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(faiss_index.faiss, "StandardGpuResources", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    faiss_index._warn_of_cpu.cache_clear()
    for _ in range(2):
        assert isinstance(open_faiss(GALLERY, "cuda"), FaissCpuIndex)
    lines = capfd.readouterr().err.splitlines()
    assert len([line for line in lines if "installed without GPU support" in line]) == 1
    faiss_index._warn_of_cpu.cache_clear()


@pytest.mark.gpu
def test_gpus_give_the_ranks_of_the_cpu() -> None:
    if not hasattr(faiss_index.faiss, "StandardGpuResources"):
        pytest.skip("FAISS is installed without GPU support")
    draw = np.random.default_rng(1)
    gallery = draw.standard_normal((3000, 64)).astype(np.float32)
    gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
    right = RightAnswers(np.arange(501), draw.integers(0, 3000, 500))
    queries = Queries(gallery[:500], gallery, right)
    wanted = search_ranks(queries, Backend("cpu", FaissCpuIndex), 10).ranks()
    on_gpus = Backend("cuda", lambda gallery: open_faiss(gallery, "cuda"))
    found = search_ranks(queries, on_gpus, 10).ranks()
    assert np.array_equal(found.worst, wanted.worst)
    assert np.array_equal(found.best, wanted.best)
