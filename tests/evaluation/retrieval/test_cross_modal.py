"""Whole evaluations: perfect, collapsed, small and broken models, and the authors' numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vlcpctl.core.errors import Diverged
from vlcpctl.evaluation.retrieval.cross_modal import cross_modal
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import (
    Embeddings,
    Gallery,
    RightAnswers,
    lay_out,
    merge_galleries,
    stack_galleries,
)
from vlcpctl.evaluation.search.queries import Queries
from vlcpctl.evaluation.search.ranks import search_ranks
from vlcpctl.metrics.recall import recalls
from vlcpctl.models.embed import require_finite

ARRAYS = np.load(Path(__file__).parents[2] / "metrics" / "data" / "itm_eval.npz")


def gallery(images: np.ndarray, texts: np.ndarray) -> Gallery:
    """One caption each."""
    rows = np.arange(len(images))
    both = [
        (part / np.linalg.norm(part, axis=1, keepdims=True)).astype(np.float32)
        for part in (images, texts)
    ]
    return Gallery(*both, np.stack([rows, rows], axis=1))


def test_a_perfect_model_scores_100() -> None:
    vectors = np.random.default_rng(0).standard_normal((200, 16))
    result = cross_modal(gallery(vectors, vectors), choose("auto", "cpu"))
    assert set(result.metrics.values()) == {100.0}
    assert (result.n_images, result.n_texts, result.n_ties) == (200, 200, 0)


def test_a_collapsed_model_scores_0_and_every_query_is_a_tie() -> None:
    ones = np.ones((200, 16))
    result = cross_modal(gallery(ones, ones), choose("auto", "cpu"))
    assert set(result.metrics.values()) == {0.0}
    assert result.n_ties == 400


def test_a_gallery_smaller_than_k_is_searched_whole() -> None:
    vectors = np.eye(3)
    result = cross_modal(gallery(vectors, vectors[[1, 0, 2]]), choose("auto", "cpu"))
    assert result.metrics["i2t_r1"] == pytest.approx(100 / 3)
    assert result.metrics["i2t_r5"] == 100


def test_identical_captions_are_no_tie_when_united() -> None:
    layout = lay_out(["a", "b", "c"], [["same"], ["same"], ["other"]])
    images = np.eye(3, dtype=np.float32)
    texts = np.array([[0.6, 0.8, 0.0], [0, 0, 1]], dtype=np.float32)
    part = Embeddings(layout, images, texts)
    assert cross_modal(merge_galleries([part]), choose("auto", "cpu")).metrics["rm"] == 100
    apart = cross_modal(stack_galleries([part]), choose("auto", "cpu"))
    assert apart.metrics["i2t_r1"] == pytest.approx(100 / 3)
    assert apart.n_ties == 2


@pytest.mark.golden
@pytest.mark.parametrize("backend", ["faiss", "torch"])
@pytest.mark.parametrize("name", ["rand0", "rand3"])
def test_a_search_gives_the_recalls_of_the_authors_code(backend: str, name: str) -> None:
    scores_i2t, scores_t2i = ARRAYS[f"{name}/scores_i2t"], ARRAYS[f"{name}/scores_t2i"]
    image_of_text = ARRAYS[f"{name}/txt2img"]
    pairs = np.stack([image_of_text, np.arange(len(image_of_text))], axis=1)
    belongs = Gallery(scores_i2t, scores_t2i, pairs)  # one row of scores for each query

    def ranks(scores: np.ndarray, right: RightAnswers) -> np.ndarray:
        # A search of the unit vectors with a row of scores finds these very scores.
        units = np.eye(scores.shape[1], dtype=np.float32)
        queries = Queries(scores, units, right)
        return search_ranks(queries, choose(backend, "cpu"), 10).ranks().worst

    found = recalls(
        ranks(scores_i2t, belongs.texts_of_images()), ranks(scores_t2i, belongs.images_of_texts())
    )
    result = dict(zip(ARRAYS["key_order"], ARRAYS[f"{name}/result"], strict=True))
    assert found["i2t_r1"] == pytest.approx(result["txt_r1"], abs=1e-9)
    assert found["t2i_r5"] == pytest.approx(result["img_r5"], abs=1e-9)
    assert found["rm"] == pytest.approx(result["r_mean"], abs=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(bad: float) -> None:
    vectors = np.ones((4, 2), dtype=np.float32)
    vectors[2, 1] = bad
    message = r"run/03, images of 01-b: contains non-finite embeddings \(1 of 4"
    with pytest.raises(Diverged, match=message):
        require_finite(vectors, "run/03, images of 01-b")
