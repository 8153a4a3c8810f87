"""Class embeddings and ranks agree with loops, and a tie is never a hit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.classification.class_vectors import TOP, class_embeddings, class_ranks
from vlcpctl.evaluation.search.index import BAND


def unit(shape: tuple[int, int], seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_class_embeddings_are_those_of_a_loop(seed: int, size: int) -> None:
    owner = np.sort(np.concatenate([np.arange(4), np.random.default_rng(seed).integers(0, 4, 12)]))
    texts = unit((len(owner), 6), seed)
    parts = [(owner[i : i + size], texts[i : i + size]) for i in range(0, len(owner), size)]
    found = class_embeddings(parts, 4, 6)
    for number in range(4):
        mean = np.mean([texts[i] for i in range(len(owner)) if owner[i] == number], axis=0)
        assert found[number] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_a_template_given_twice_counts_twice() -> None:
    one, other = np.eye(2, dtype=np.float32)
    found = class_embeddings([(np.array([0, 0, 0]), np.stack([one, one, other]))], 1, 2)
    assert found[0] == pytest.approx(np.array([2, 1]) / 5**0.5)


def test_texts_that_cancel_out_leave_a_class_without_a_direction() -> None:
    one = np.array([[1.0, 0.0], [-1.0, 0.0]], dtype=np.float32)
    assert not class_embeddings([(np.array([0, 0]), one)], 1, 2).any()


def naive_rank(image: np.ndarray, label: int, classes: np.ndarray) -> int:
    """One plus the number of wrong classes at most a band below the right one."""
    scores = [float(np.dot(image.astype(np.float64), one.astype(np.float64))) for one in classes]
    rivals = sum(score >= scores[label] - BAND for score in scores) - 1
    return min(rivals, TOP) + 1


@given(st.integers(0, 10**6), st.integers(2, 30))
@settings(max_examples=30, deadline=None)
def test_ranks_are_those_of_a_loop(seed: int, classes: int) -> None:
    class_CD = unit((classes, 5), seed)
    class_CD[1] = class_CD[0]  # one tie at least
    images, labels = unit((12, 5), seed + 1), np.arange(12) % classes
    found = class_ranks(images, labels, class_CD, "cpu").ranks().worst
    expected = [naive_rank(i, n, class_CD) for i, n in zip(images, labels, strict=True)]
    assert found.tolist() == expected


def test_a_model_that_has_collapsed_is_right_about_nothing() -> None:
    same = np.tile(unit((1, 4), 0), (6, 1))
    ranks = class_ranks(same, np.arange(6), same, "cpu").ranks()
    assert ranks.worst.tolist() == [6] * 6
    assert ranks.best.tolist() == [1] * 6
