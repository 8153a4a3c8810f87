"""Class embeddings agree with loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.evaluation.classification.labelled_sets import class_embeddings


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_class_embeddings_are_those_of_a_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    prompts = [["text"] * int(size) for size in random.integers(1, 5, 4)]
    texts = random.normal(size=(sum(map(len, prompts)), 6)).astype(np.float32)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    found, start = class_embeddings(prompts, texts), 0
    for row, own in zip(found, prompts, strict=True):
        mean = np.mean(texts[start : start + len(own)], axis=0)
        assert row == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)
        start += len(own)


def test_a_template_given_twice_counts_twice_and_texts_may_cancel_out() -> None:
    texts = np.array([[1, 0], [1, 0], [0, 1], [1, 0], [-1, 0]], dtype=np.float32)
    found = class_embeddings([["a", "a", "b"], ["c", "d"]], texts)
    assert found[0] == pytest.approx(np.array([2, 1]) / 5**0.5)
    assert not found[1].any()
