"""Which backend is chosen, and the results of each."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.evaluation.search import faiss_index
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.index import Index, Vectors

ARRAYS = np.load(Path(__file__).parents[2] / "metrics" / "data" / "itm_eval.npz")
VECTORS = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def opened(backend: str, device: str, vectors: Vectors) -> Index:
    open_index = choose(backend, device).open_index
    assert open_index is not None
    return open_index(vectors)


def without_faiss(monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


def test_faiss_is_taken_where_it_is() -> None:
    assert isinstance(opened("auto", "cpu", VECTORS), faiss_index.FaissCpuIndex)


def test_torch_serves_without_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    without_faiss(monkeypatch, None)
    assert choose("auto", "cpu").open_index is None


def test_a_broken_install_of_faiss_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    without_faiss(monkeypatch, ModuleSpec("faiss", None))
    assert choose("auto", "cpu").open_index is None


def test_torch_serves_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert choose("auto", "cpu").open_index is None


def test_asking_for_an_absent_faiss_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without_faiss(monkeypatch, None)
    with pytest.raises(UsageError, match=r"pip install faiss-cpu"):
        choose("faiss", "cpu")


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'faiss'"):
        choose("fais", "cpu")


def test_no_gpu_means_no_gpu_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "FaissGpuIndex", None)
    assert isinstance(opened("faiss", "cuda", VECTORS), faiss_index.FaissCpuIndex)


def test_largest_products_come_first() -> None:
    scores, ids = opened("faiss", "cpu", VECTORS).search(VECTORS[:5], 50)
    assert np.array_equal(ids, np.argsort(-(VECTORS[:5] @ VECTORS.T), axis=1))
    assert np.all(np.diff(scores, axis=1) <= 0)


@pytest.mark.golden
def test_the_ten_best_are_those_of_the_authors_code() -> None:
    """Their scores are -100 beyond the ten best of a row.

    The sum over four processes is not compared: rounding makes two of its scores equal.
    """
    images, texts = (
        ARRAYS[f"evaluation/{side}_proj"]
        / np.linalg.norm(ARRAYS[f"evaluation/{side}_proj"], axis=1, keepdims=True)
        for side in ("image", "text")
    )
    for queries, gallery, name in ((images, texts, "i2t"), (texts, images, "t2i")):
        found, ids = opened("faiss", "cpu", gallery).search(queries, 10)
        scores = np.full((len(queries), len(gallery)), -100, dtype=np.float32)
        np.put_along_axis(scores, ids, found, axis=1)
        assert np.allclose(scores, ARRAYS[f"evaluation/score_{name}"], atol=1e-6)
