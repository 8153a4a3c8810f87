"""Places of right answers against a full matrix in float64, for every backend, with many ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search import hits
from vlcpctl.evaluation.search.backends import Backend, choose
from vlcpctl.evaluation.search.hits import Hits, HitSearch, best_right_scores
from vlcpctl.evaluation.search.index import BAND, QueryAndGallery, Vectors
from vlcpctl.evaluation.search.items import ClassSearch, GrowingItems

TOP = 10


class NaiveIndex:
    """Sorts the full matrix."""

    def __init__(self, gallery: Vectors) -> None:
        self.gallery = gallery

    def search(self, queries: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
        scores = queries @ self.gallery.T
        ids = np.argsort(-scores, axis=1)[:, :k]
        return np.take_along_axis(scores, ids, axis=1), ids


NAIVE = Backend("cpu", NaiveIndex)
BACKENDS = {"naive": NAIVE, "faiss": choose("faiss", "cpu"), "torch": choose("torch", "cpu")}
every_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())


def find_hits(search: ClassSearch, backend: Backend, top: int) -> Hits:
    return HitSearch.of(GrowingItems.of(search), backend, top).first()


def unit(vectors: np.ndarray) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def by_full_matrix(search: ClassSearch, top: int, band: float) -> list[list[bool]]:
    """By definition: wrong answers that score a right one plus `band` rank before it."""
    queries, gallery = search.sides.query_QD, search.sides.gallery_GD
    scores = queries.astype(np.float64) @ gallery.astype(np.float64).T
    found = []
    for row, name, itself in zip(scores, search.class_Q, search.itself_Q, strict=True):
        others = [(score, place) for place, score in enumerate(row) if place != itself]
        right = sorted((s for s, place in others if search.class_G[place] == name), reverse=True)
        wrong = [s for s, place in others if search.class_G[place] != name]
        line = [False] * top
        for number, score in enumerate(right):
            place = number + sum(one >= score + band for one in wrong)
            if place < top:
                line[place] = True
        found.append(line)
    return found


def crowd(seed: int, spread: float, size: int = 300, *, inside: bool = True) -> ClassSearch:
    """Few centres, many copies of each `spread` apart, classes of 1 to 60 that cut across them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((9, 8))
    gallery = unit(
        centres[random.integers(0, 9, size)] + spread * random.standard_normal((size, 8))
    )
    gallery[random.integers(0, size, size // 8)] = gallery[0]
    classes = np.minimum(random.geometric(0.15, size), 20)
    if inside:
        rows = random.permutation(size)[:60]
        return ClassSearch(QueryAndGallery(gallery[rows], gallery), classes[rows], classes, rows)
    asked = unit(gallery[:60] + spread * random.standard_normal(gallery[:60].shape))
    outside = np.full(len(asked), -1)
    return ClassSearch(
        QueryAndGallery(asked, gallery), random.integers(1, 25, len(asked)), classes, outside
    )


@every_backend
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("spread", [0.5, 1e-2, 2e-3, 1e-3, 1e-4, 0.0])
def test_hits_are_those_of_the_full_matrix(
    backend: Backend, spread: float, *, inside: bool
) -> None:
    for seed in range(2):
        search = crowd(seed, spread, inside=inside)
        found = find_hits(search, backend, TOP)
        assert found.worst.tolist() == by_full_matrix(search, TOP, -BAND)
        assert found.best.tolist() == by_full_matrix(search, TOP, BAND)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(-6, 0), st.integers(2, 40), st.integers(1, 12))
def test_backends_agree_on_small_galleries(seed: int, scale: float, size: int, top: int) -> None:
    search = crowd(seed, 10**scale, size)
    wanted = by_full_matrix(search, top, -BAND)
    for backend in BACKENDS.values():
        assert find_hits(search, backend, top).worst.tolist() == wanted


@every_backend
def test_a_collapsed_model_hits_nothing(backend: Backend) -> None:
    same, classes = unit(np.ones((400, 16))), np.arange(400) // 100
    search = ClassSearch(QueryAndGallery(same, same), classes, classes, np.arange(400))
    found = find_hits(search, backend, TOP)
    assert not found.worst.any()
    assert found.best.all()


def test_a_tie_puts_the_wrong_answer_first() -> None:
    gallery = unit(np.array([[1, 0], [1, 0], [1, 3e-3], [1, 0.5], [1, 1.0]]))
    search = ClassSearch(
        QueryAndGallery(gallery[:1], gallery),
        np.array([7]),
        np.array([7, 8, 7, 7, 8]),
        np.array([0]),
    )
    found = find_hits(search, NAIVE, 4)
    assert found.worst.tolist() == [[False, True, True, False]]  # row 2 is 4.5e-6 below row 1
    assert found.best.tolist() == [[True, False, True, False]]


def test_the_query_itself_is_in_no_place() -> None:
    gallery = unit(np.array([[1, 0], [1, 0.1], [1, 0.2]]))
    classes = np.array([0, 1, 0])
    sides = QueryAndGallery(gallery[:1], gallery)
    inside = ClassSearch(sides, classes[:1], classes, np.array([0]))
    outside = ClassSearch(sides, classes[:1], classes, np.array([-1]))
    assert find_hits(inside, NAIVE, 3).worst.tolist() == [[False, True, False]]
    assert find_hits(outside, NAIVE, 3).worst.tolist() == [[True, False, True]]
    assert (inside.right_counts().tolist(), outside.right_counts().tolist()) == ([1], [2])


def test_a_class_that_the_gallery_lacks_has_no_hits() -> None:
    gallery = unit(np.eye(3))
    search = ClassSearch(
        QueryAndGallery(gallery, gallery), np.full(3, 9), np.zeros(3, int), np.full(3, -1)
    )
    assert not find_hits(search, NAIVE, TOP).best.any()
    assert search.right_counts().tolist() == [0, 0, 0]


@pytest.mark.parametrize("backend", [NAIVE, BACKENDS["torch"]])
def test_what_the_wrong_answers_found_leave_open_is_searched_in_float64(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 60 wrong answers so near the edge that float32 cannot tell on which side they are.
    angles = np.arccos(1 - BAND - 1e-6 * np.linspace(-0.2, 1, 60))
    gallery = unit(np.array([[1, 0], *np.stack([np.cos(angles), np.sin(angles)], axis=1)]))
    query, classes = np.array([[1, 0]], dtype=np.float32), np.array([0] + [1] * 60)
    search = ClassSearch(QueryAndGallery(query, gallery), np.array([0]), classes, np.array([-1]))
    again: list[int] = []
    best_wrong = hits._Block._best_wrong

    def counted(self: hits._Block, places: np.ndarray, end: int) -> np.ndarray:
        again.extend(places.tolist())
        return best_wrong(self, places, end)

    monkeypatch.setattr(hits._Block, "_best_wrong", counted)
    found = find_hits(search, backend, 15)
    assert again == [0]
    assert found.worst.tolist() == by_full_matrix(search, 15, -BAND)
    assert found.worst.any()


@every_backend
@pytest.mark.parametrize("name", ["_BLOCK_ROWS", "_TILE_ROWS"])
def test_blocks_and_tiles_change_nothing(
    backend: Backend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = crowd(0, 1e-2)
    whole = find_hits(search, backend, TOP)
    monkeypatch.setattr(hits, name, 5)
    monkeypatch.setattr(hits, "_TILE_COLUMNS", 7)
    monkeypatch.setattr(hits, "_SCAN_COLUMNS", 7)
    parts = find_hits(search, backend, TOP)
    assert np.array_equal(parts.worst, whole.worst)
    assert np.array_equal(parts.best, whole.best)


def test_fewer_right_answers_than_places_are_minus_infinity() -> None:
    search = crowd(3, 0.5)
    scores = best_right_scores(search, TOP)
    counts = np.minimum(search.right_counts(), TOP)
    assert np.isfinite(scores).sum(axis=1).tolist() == counts.tolist()
    assert all(line == sorted(line, reverse=True) for line in scores.tolist())


@pytest.mark.gpu
def test_a_gpu_gives_the_hits_of_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    for spread in (0.5, 2e-3, 0.0):
        search = crowd(1, spread, size=3000)
        wanted = find_hits(search, BACKENDS["faiss"], TOP)
        for backend in (choose("auto", "cuda"), choose("torch", "cuda")):
            assert np.array_equal(find_hits(search, backend, TOP).worst, wanted.worst)
