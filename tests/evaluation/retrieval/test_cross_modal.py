"""Whole evaluations: perfect, collapsed, small and broken models, and the authors' numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vlcpctl.core.errors import Diverged
from vlcpctl.evaluation.retrieval.protocols import TOP, cross_modal
from vlcpctl.evaluation.search.count import by_candidates, counted
from vlcpctl.evaluation.search.galleries import Captioned, Embeddings, Search, gather
from vlcpctl.metrics.recall import recalls
from vlcpctl.models.embed import require_finite

ARRAYS = np.load(Path(__file__).parents[2] / "metrics" / "data" / "itm_eval.npz")


def measured(images: np.ndarray, texts: np.ndarray) -> dict[str, Any]:
    """One caption each."""
    both = [
        (side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float32)
        for side in (images, texts)
    ]
    return cross_modal(*both, np.stack([np.arange(len(images))] * 2, axis=1), "cpu")


def test_a_perfect_model_scores_100_and_a_collapsed_one_0() -> None:
    vectors = np.random.default_rng(0).standard_normal((200, 16))
    found = measured(vectors, vectors)
    assert set(found["metrics"].values()) == {100.0}
    assert (found["n_images"], found["n_texts"], found["n_ties"]) == (200, 200, 0)
    found = measured(np.ones((200, 16)), np.ones((200, 16)))
    assert (set(found["metrics"].values()), found["n_ties"]) == ({0.0}, 400)


def test_a_gallery_smaller_than_k_is_searched_whole() -> None:
    metrics = measured(np.eye(3), np.eye(3)[[1, 0, 2]])["metrics"]
    assert metrics["i2t_r1"] == pytest.approx(100 / 3)
    assert metrics["i2t_r5"] == 100


def test_identical_captions_are_no_tie_when_united() -> None:
    part = Captioned.of(["a", "b", "c"], [["same"], ["same"], ["other"]])
    texts = np.array([[0.6, 0.8, 0.0], [0, 0, 1]], dtype=np.float32)
    found = {}
    for duplicates in ("unite", "separate"):
        gallery = gather([part], duplicates)
        vectors = gallery.vectors([Embeddings(np.eye(3, dtype=np.float32), texts)])
        found[duplicates] = cross_modal(*(one[:] for one in vectors), gallery.pairs_P2, "cpu")
    assert found["unite"]["metrics"]["rm"] == 100
    assert found["separate"]["metrics"]["i2t_r1"] == pytest.approx(100 / 3)
    assert found["separate"]["n_ties"] == 2


@pytest.mark.golden
@pytest.mark.parametrize("find", [counted, by_candidates])
@pytest.mark.parametrize("name", ["rand0", "rand3"])
def test_a_search_gives_the_recalls_of_the_authors_code(find: Any, name: str) -> None:
    image_of_text = ARRAYS[f"{name}/txt2img"]
    text_rows = np.arange(len(image_of_text))
    pairs = np.stack([image_of_text, text_rows], axis=1)

    def ranks(way: str, right: np.ndarray) -> np.ndarray:
        # A search of the unit vectors with a row of scores finds these very scores.
        scores = ARRAYS[f"{name}/scores_{way}"]
        units = np.eye(scores.shape[1], dtype=np.float32)
        search = Search.of(scores, units, right[np.lexsort(right.T[::-1])])
        return 1 + find(search, torch.device("cpu"), TOP)[0][0]

    found = recalls(ranks("i2t", pairs), ranks("t2i", pairs[:, ::-1]))
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
