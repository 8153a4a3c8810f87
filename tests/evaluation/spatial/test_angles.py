"""Spatial disorder between two models: which pairs count, and what is measured."""

from __future__ import annotations

import numpy as np
import pytest

from vlcpctl.evaluation.search.galleries import Captioned, Embeddings
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.evaluation.spatial import spatial
from vlcpctl.metrics.angles import rotations

CAPTIONS = [["a"], ["b", "c"], ["a", "d"], ["e"], ["f"], ["g"]]  # two images share a text
HASHES = ["1", "2", "3", "4", "5", "4"]  # two samples share an image
SAMPLES = Captioned.of(HASHES, CAPTIONS)


def unit(seed: int, rows: int, width: int = 4) -> Vectors:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def model(seed: int) -> Embeddings:
    return Embeddings(unit(seed, 5), unit(seed + 1000, 7))


def belongs() -> np.ndarray:
    """(images, texts) which texts match which images, by hand."""
    right = np.zeros((5, 7), dtype=bool)
    for image, texts in enumerate([[0], [1, 2], [0, 3], [4, 6], [5]]):
        right[image, texts] = True
    return right


def naive_pairs(scores: np.ndarray, right: np.ndarray) -> list[tuple[int, int]]:
    """Each row that has a right column above every wrong one, with the best of the right ones."""
    found = []
    for row in range(len(scores)):
        best = max(np.flatnonzero(right[row]), key=lambda column: scores[row, column])
        if all(
            scores[row, best] > scores[row, wrong] + 1e-5 for wrong in np.flatnonzero(~right[row])
        ):
            found.append((row, int(best)))
    return found


def angle(image: np.ndarray, text: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip(image.astype(float) @ text.astype(float), -1, 1))))


@pytest.mark.parametrize("seed", range(8))
def test_pairs_are_those_that_the_earlier_model_ranks_first(seed: int) -> None:
    before, after = model(seed), model(seed + 100)
    scores = before.image_ID.astype(float) @ before.text_TD.astype(float).T
    ways = {
        "i2t": naive_pairs(scores, belongs()),
        "t2i": [(image, text) for text, image in naive_pairs(scores.T, belongs().T)],
    }
    found = spatial(SAMPLES, before, after, "cpu")
    for way, pairs in ways.items():
        changes = [
            abs(
                angle(before.image_ID[i], before.text_TD[t])
                - angle(after.image_ID[i], after.text_TD[t])
            )
            for i, t in pairs
        ]
        assert sum(found["degrees"][f"imav_{way}"]) == len(changes)
        mean = found["metrics"][f"imav_{way}_mean"]
        assert mean == (pytest.approx(np.mean(changes), abs=1e-4) if changes else None)


def test_seeds_of_the_test_above_have_pairs_and_images_without() -> None:
    counts = [len(naive_pairs(m.image_ID @ m.text_TD.T, belongs())) for m in map(model, range(8))]
    assert 0 < sum(counts) < 5 * 8


def test_a_tie_is_not_ranked_first() -> None:
    image = np.eye(4, dtype=np.float32)[:2]
    text = np.array([[1, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32)
    tied, part = Embeddings(image, text), Captioned.of(["1", "2"], [["a"], ["b"]])
    found = spatial(part, tied, tied, "cpu")
    assert found["degrees"]["imav_i2t"] == []
    assert found["metrics"]["imav_i2t_0_5"] is None


def test_distinct_images_and_texts_are_the_samples() -> None:
    found = spatial(SAMPLES, model(0), model(1), "cpu")
    assert (found["n_images"], found["n_texts"]) == (5, 7)
    assert sum(found["degrees"]["sam_image"]) == 10
    assert sum(found["degrees"]["sam_text"]) == 21
    assert sum(found["degrees"]["ram_text"]) == 7
    assert found["metrics"]["ram_image_mean"] == pytest.approx(
        rotations(model(0).image_ID, model(1).image_ID).mean()
    )


def test_the_same_model_twice_has_not_turned() -> None:
    metrics = spatial(SAMPLES, model(0), model(0), "cpu")["metrics"]
    assert {one for name, one in metrics.items() if name.endswith("_mean")} <= {0, None}
    assert {one for name, one in metrics.items() if "_0_" in name} <= {100, None}
    assert (metrics["sam_image_20_180"], metrics["ram_text_mean"]) == (0, 0)
