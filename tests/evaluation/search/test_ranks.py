"""Ranks against a full matrix in float64, for every backend, with ties and many right answers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search import ranks
from vlcpctl.evaluation.search.backends import Backend, choose
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import BAND, Vectors
from vlcpctl.evaluation.search.queries import Queries, Ranks
from vlcpctl.evaluation.search.ranks import search_ranks
from vlcpctl.evaluation.search.scan import Scanned


class NaiveIndex:
    """Sorts the full matrix."""

    asked: ClassVar[list[int]] = []

    def __init__(self, gallery: Vectors) -> None:
        self.gallery = gallery
        self.asked.clear()

    def search(self, queries: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
        self.asked.append(k)
        scores = queries @ self.gallery.T
        ids = np.argsort(-scores, axis=1)[:, :k]
        return np.take_along_axis(scores, ids, axis=1), ids


NAIVE = Backend("cpu", NaiveIndex)
BACKENDS = {
    "naive": NAIVE,
    "faiss": choose("faiss", "cpu"),
    "torch": choose("torch", "cpu"),
}
every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())


def rank(queries: Queries, backend: Backend, top: int) -> Ranks:
    return search_ranks(queries, backend, top).ranks()


def unit(vectors: np.ndarray) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def right_answers(answers: list[list[int]]) -> RightAnswers:
    starts = np.cumsum([0, *(len(ids) for ids in answers)])
    return RightAnswers(starts, np.array([row for ids in answers for row in sorted(ids)]))


def by_full_matrix(queries: Queries, top: int, band: float) -> np.ndarray:
    """By definition: wrong answers that score the best right one plus `band` come first."""
    scores = queries.query_QD.astype(np.float64) @ queries.gallery_GD.astype(np.float64).T
    found = []
    for query, row in enumerate(scores):
        right = queries.right.ids[queries.right.starts[query] : queries.right.starts[query + 1]]
        outranked = row >= row[right].max() + band
        outranked[right] = False
        found.append(min(outranked.sum(), top) + 1)
    return np.array(found)


def crowd(seed: int, spread: float, size: int = 400, dimensions: int = 8) -> Queries:
    """Few centres, many copies of each `spread` apart, and one to four right answers a query."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, dimensions))
    which = random.integers(0, 12, size)
    gallery = unit(centres[which] + spread * random.standard_normal((size, dimensions)))
    gallery[random.integers(0, size, size // 8)] = gallery[0]
    answers = [
        random.choice(size, random.integers(1, 5), replace=False).tolist() for _ in range(90)
    ]
    asked = [gallery[ids[0]] for ids in answers] + spread * random.standard_normal((90, dimensions))
    return Queries(unit(asked), gallery, right_answers(answers))


@every_backend
@pytest.mark.parametrize("spread", [0.5, 1e-2, 2e-3, 1e-3, 1e-4, 0.0])
def test_ranks_are_those_of_the_full_matrix(backend: Backend, spread: float) -> None:
    for seed in range(3):
        queries = crowd(seed, spread)
        found = rank(queries, backend, 10)
        assert found.worst.tolist() == by_full_matrix(queries, 10, -BAND).tolist()
        assert found.best.tolist() == by_full_matrix(queries, 10, BAND).tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(-6, 0), st.integers(1, 40), st.integers(1, 12))
def test_backends_agree_on_small_galleries(seed: int, scale: float, size: int, top: int) -> None:
    queries = crowd(seed, 10**scale, size=max(size, 5), dimensions=3)
    wanted = by_full_matrix(queries, top, -BAND).tolist()
    for backend in BACKENDS.values():
        assert rank(queries, backend, top).worst.tolist() == wanted


@every_backend
def test_a_tie_is_never_a_hit(backend: Backend) -> None:
    queries = Queries(
        query_QD=np.eye(2, dtype=np.float32),
        gallery_GD=unit(np.array([[1, 0], [1, 0], [0, 1], [1, 3e-3]])),
        right=right_answers([[0], [2]]),
    )
    found = rank(queries, backend, 10)
    assert found.worst.tolist() == [3, 1]  # row 1 is equal, row 3 is 4.5e-6 away
    assert found.best.tolist() == [1, 1]


@every_backend
def test_a_collapsed_model_hits_nothing(backend: Backend) -> None:
    same = unit(np.ones((300, 16)))
    queries = Queries(same, same, right_answers([[row] for row in range(300)]))
    found = rank(queries, backend, 10)
    assert set(found.worst) == {11}
    assert set(found.best) == {1}


def test_other_right_answers_cost_nothing() -> None:
    gallery = unit(np.array([[1, 0], [1, 0.1], [1, 0.2], [1, 0.3]]))
    queries = Queries(gallery[:1], gallery, right_answers([[1, 2, 3]]))
    assert rank(queries, NAIVE, 10).worst.tolist() == [2]


def test_more_right_answers_than_the_cut_still_count() -> None:
    gallery = unit(np.random.default_rng(0).standard_normal((60, 4)))
    queries = Queries(gallery[:2], gallery, right_answers([list(range(50)), [1]]))
    assert rank(queries, NAIVE, 5).worst.tolist() == [1, 1]
    assert NaiveIndex.asked == [8]  # of the right answers, only the best are tied


def test_what_the_candidates_leave_open_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    # 40 rivals so near the edge that float32 cannot tell on which side they are.
    angles = np.arccos(1 - BAND - 1e-6 * np.linspace(-1, 1, 40))
    gallery = unit(np.array([[1, 0], *np.stack([np.cos(angles), np.sin(angles)], axis=1)]))
    both = np.array([[1, 0], [0, 1]], dtype=np.float32)
    queries = Queries(both, gallery, right_answers([[0], list(range(1, 41))]))
    scanned: list[int] = []
    scan = ranks.scan

    def counted(queries: Queries, device: str, top: int | None) -> Scanned:
        scanned.append(len(queries.query_QD))
        return scan(queries, device, top)

    monkeypatch.setattr(ranks, "scan", counted)
    found = rank(queries, NAIVE, 30)
    assert scanned == [1]
    assert found.worst.tolist() == by_full_matrix(queries, 30, -BAND).tolist()


def test_near_duplicates_come_to_an_end() -> None:
    random = np.random.default_rng(0)
    gallery = unit(np.array([1.0, 0, 0]) + 3e-3 * random.standard_normal((3000, 3)))
    queries = Queries(gallery[:200], gallery, right_answers([[row] for row in range(200)]))
    found = rank(queries, BACKENDS["faiss"], 10)
    assert found.worst.tolist() == by_full_matrix(queries, 10, -BAND).tolist()


def test_queries_are_searched_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = crowd(0, 0.5)
    whole = rank(queries, NAIVE, 10)
    monkeypatch.setattr(ranks, "_BLOCK_SCORES", 64)
    parts = rank(queries, NAIVE, 10)
    assert len(NaiveIndex.asked) > 10
    assert parts.worst.tolist() == whole.worst.tolist()


@pytest.mark.gpu
def test_a_gpu_gives_the_ranks_of_the_cpu() -> None:
    faiss, torch = pytest.importorskip("faiss"), pytest.importorskip("torch")
    backends = [choose("torch", "cuda")] if torch.cuda.is_available() else []
    backends += [choose("faiss", "cuda")] if faiss.get_num_gpus() else []
    if not backends:
        pytest.skip("neither FAISS nor torch sees a GPU")
    for spread in (0.5, 2e-3, 0.0):
        queries = crowd(1, spread, size=5000)
        wanted, exact = (
            search_ranks(queries, choose("torch", "cpu"), 10, is_exact=one) for one in (False, True)
        )
        for backend in backends:
            found = rank(queries, backend, 10)
            assert found.worst.tolist() == wanted.ranks().worst.tolist()
            assert found.best.tolist() == wanted.ranks().best.tolist()
            here = search_ranks(queries, backend, 10, is_exact=True).exact()
            for field in ("rank", "wrong", "wrong_rank"):
                assert np.array_equal(getattr(here, field), getattr(exact.exact(), field))
