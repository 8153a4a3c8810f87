"""Exact ranks and best wrong answers against a full matrix in float64, with ties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.search import scan as module
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import RightAnswers
from vlcpctl.evaluation.search.index import BAND, Vectors
from vlcpctl.evaluation.search.queries import ExactRanks, Queries
from vlcpctl.evaluation.search.ranks import search_ranks


def unit(vectors: np.ndarray) -> Vectors:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def queries_of(query: np.ndarray, gallery: np.ndarray, answers: list[list[int]]) -> Queries:
    starts = np.cumsum([0, *map(len, answers)])
    ids = np.array([row for own in answers for row in sorted(own)], dtype=np.int64)
    return Queries(unit(query), unit(gallery), RightAnswers(starts, ids))


def drawn(seed: int, size: int, spread: float) -> Queries:
    """Few centres with copies `spread` apart, some of them equal; one to three right answers."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((4, 3))
    gallery = centres[random.integers(0, 4, size)] + spread * random.standard_normal((size, 3))
    gallery[random.integers(0, size, size // 4)] = gallery[0]
    answers = [
        random.choice(size, random.integers(1, min(size, 3) + 1), replace=False).tolist()
        for _ in range(20)
    ]
    return queries_of(np.stack([gallery[own[0]] for own in answers]), gallery, answers)


def found_by(queries: Queries, top: int = 10) -> ExactRanks:
    found = search_ranks(queries, choose("torch", "cpu"), top, is_exact=True)
    up_to_top = search_ranks(queries, choose("torch", "cpu"), top).ranks()
    for field in ("worst", "best"):
        assert np.array_equal(getattr(found.ranks(), field), getattr(up_to_top, field))
    return found.exact()


def by_definition(queries: Queries) -> list[tuple[int, float | None, int]]:
    """Rank of the best right answer, score of the best wrong one, and its rank."""
    scores = queries.query_QD.astype(np.float64) @ queries.gallery_GD.astype(np.float64).T
    found = []
    for query, row in enumerate(scores):
        is_right = np.zeros(len(row), dtype=bool)
        is_right[queries.right.ids[slice(*queries.right.starts[query : query + 2])]] = True
        right, wrong = row[is_right], row[~is_right]
        if len(wrong) == 0:
            found.append((1, None, -1))
            continue
        above = int(np.sum(right - BAND > wrong.max()))
        found.append((1 + int(np.sum(wrong >= right.max() - BAND)), wrong.max(), 1 + above))
    return found


def check(queries: Queries, top: int = 10) -> None:
    found = found_by(queries, top)
    scores = queries.query_QD.astype(np.float64) @ queries.gallery_GD.astype(np.float64).T
    for query, (place, score, wrong_rank) in enumerate(by_definition(queries)):
        assert found.rank[query] == place
        assert found.wrong_rank[query] == wrong_rank
        assert (found.wrong[query] < 0) == (score is None)
        if score is not None:
            assert abs(scores[query, found.wrong[query]] - score) <= 2e-9


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(-6, 0), st.integers(1, 12))
def test_ranks_are_those_of_the_full_matrix(seed: int, size: int, scale: float, top: int) -> None:
    check(drawn(seed, size, 10**scale), top)


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = drawn(3, 50, 1e-2)
    whole = found_by(queries)
    monkeypatch.setattr(module, "_COLUMNS", 7)
    monkeypatch.setattr(module, "_SCORES", 21)
    tiled = found_by(queries)
    for name in ("rank", "wrong", "wrong_rank"):
        assert getattr(tiled, name).tolist() == getattr(whole, name).tolist()


def copies(seed: int, step: float) -> Queries:
    """Copies whose scores against their centre are 0 to 3 steps apart, give or take a little."""
    random = np.random.default_rng(seed)
    centres = unit(random.standard_normal((6, 16)))[random.integers(0, 6, 150)]
    aside = random.standard_normal(centres.shape)
    aside = unit(aside - np.sum(aside * centres, axis=1, keepdims=True) * centres)
    angles = np.arccos(1 - random.integers(0, 4, 150) * step * random.normal(1, 1e-3, 150))
    gallery = centres * np.cos(angles)[:, None] + aside * np.sin(angles)[:, None]
    answers = [[row, row + 75] for row in range(75)]
    return queries_of(centres[:75], gallery, answers)


@pytest.mark.parametrize("step", [0.0, BAND, 2 * BAND])
@pytest.mark.parametrize("crowd", [1, 32])
def test_copies_a_band_apart_are_counted_exactly(
    step: float, crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score may be near one edge of the band, or both sides of neither."""
    monkeypatch.setattr(module, "_CROWD", crowd)
    monkeypatch.setattr(module, "_COLUMNS", 40)
    for seed in range(8):
        check(copies(seed, step))


def test_training_in_tf32_does_not_make_scores_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    arithmetic, matmul = torch.backends.cuda.matmul, torch.Tensor.__matmul__

    def watched(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        seen.append(arithmetic.allow_tf32)
        return matmul(one, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    there = torch.ones(2, 3, device="meta")
    arithmetic.allow_tf32 = True
    try:
        assert module.product(there, there).shape == (2, 2)
        assert seen == [False]
        assert arithmetic.allow_tf32
    finally:
        arithmetic.allow_tf32 = False


def test_of_equal_wrong_answers_the_first_is_named_and_a_tie_is_lost() -> None:
    gallery = np.array([[0, 1], [1, 0], [1, 0], [1, 0], [1, 1]])
    found = found_by(queries_of(np.array([[1, 0], [0, 1]]), gallery, [[3], [0, 4]]))
    assert found.rank.tolist() == [3, 1]
    assert found.wrong.tolist() == [1, 1]
    assert found.wrong_rank.tolist() == [1, 3]


def test_without_a_wrong_answer_there_is_none() -> None:
    found = found_by(queries_of(np.eye(2), np.eye(2), [[0, 1], [1]]))
    assert found.wrong.tolist() == [-1, 0]
    assert found.wrong_rank.tolist() == [-1, 2]


def test_no_query_has_no_rank() -> None:
    nothing = Queries(
        np.empty((0, 2), np.float32),
        unit(np.eye(2)),
        RightAnswers(np.zeros(1, np.int64), np.empty(0, np.int64)),
    )
    assert len(found_by(nothing).rank) == 0
