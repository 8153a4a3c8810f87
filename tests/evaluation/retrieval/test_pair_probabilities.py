"""Calibration in galleries: pair by pair, part by part, and whatever is computed at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vlcpctl.evaluation.retrieval import pair_probabilities
from vlcpctl.evaluation.retrieval.pair_probabilities import (
    PairProbability,
    calibration_beside,
    calibrations,
)
from vlcpctl.evaluation.search.gallery import GATHER, GATHER_GROWING, Embeddings, Gallery, lay_out
from vlcpctl.metrics.calibration import calibration, tally

JUDGE = PairProbability(10.0, -7.0)

every_handling = pytest.mark.parametrize("duplicates", ["unite", "separate"])


def parts_of(seed: int, count: int = 3, size: int = 9) -> list[Embeddings]:
    """Parts that share images and texts, and pair what earlier parts had apart."""
    random = np.random.default_rng(seed)
    images, texts = (unit(random.standard_normal((12, 4))) for _ in range(2))
    found = []
    for _ in range(count):
        rows = random.integers(0, 12, size).tolist()
        captions = [[str(row), str(random.integers(0, 12))] for row in rows]
        layout = lay_out([str(row) for row in rows], captions)
        named = ([int(name) for name in names] for names in (layout.image_ids, layout.texts))
        image, text = (vectors[own] for vectors, own in zip((images, texts), named, strict=True))
        found.append(Embeddings(layout, image, text))
    return found


def unit(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found.astype(np.float32)


def naive(gallery: Gallery, judged: set[tuple[int, int]] | None = None) -> dict[str, float]:
    """One pair at a time, in Python's floats; of `judged` pairs only."""
    true = set(map(tuple, gallery.pairs_P2.tolist()))
    found: dict[bool, list[float]] = {True: [], False: []}
    for row, image in enumerate(np.asarray(gallery.image_ID).tolist()):
        for column, text in enumerate(np.asarray(gallery.text_TD).tolist()):
            if judged is None or (row, column) in judged:
                score = math.fsum(x * y for x, y in zip(image, text, strict=True))
                p = 1 / (1 + math.exp(-(JUDGE.scale * score + JUDGE.bias)))
                found[(row, column) in true].append(p)
    every = tally(np.array([*found[True], *found[False]]))
    return calibration(every, tally(np.array(found[True])).count_K)


@every_handling
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_every_growing_gallery_is_judged(duplicates: str, seed: int) -> None:
    parts = parts_of(seed)
    found = calibrations(GATHER_GROWING[duplicates](parts), JUDGE, "cpu")
    assert found == [naive(GATHER[duplicates](parts[:end])) for end in (1, 2, 3)]
    assert len({one["pair_calibration"] for one in found}) == 3


@every_handling
def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch, duplicates: str) -> None:
    growing = GATHER_GROWING[duplicates](parts_of(0))
    whole = calibrations(growing, JUDGE, "cpu")
    monkeypatch.setattr(pair_probabilities, "_TILE", 2)
    assert calibrations(growing, JUDGE, "cpu") == whole


def test_distractors_are_wrong_for_the_own_entries_alone() -> None:
    gallery = GATHER["unite"](parts_of(0))
    (images, texts), own = (len(gallery.image_ID), len(gallery.text_TD)), gallery
    more = unit(np.random.default_rng(9).standard_normal((5, 4)))
    gallery = Gallery(
        np.concatenate([own.image_ID, more]), np.concatenate([own.text_TD, more]), own.pairs_P2
    )
    judged = {
        (row, column)
        for row in range(images + 5)
        for column in range(texts + 5)
        if row < images or column < texts
    }
    found = calibration_beside(gallery, (images, texts), JUDGE, "cpu")
    assert found == naive(gallery, judged)
    assert found != naive(gallery)
    assert found != naive(own)
    assert calibration_beside(own, (images, texts), JUDGE, "cpu") == naive(own)


def test_embeddings_may_be_read_only() -> None:
    found = GATHER["unite"](parts_of(0))
    image, text = np.array(found.image_ID), np.array(found.text_TD)
    image.setflags(write=False)
    text.setflags(write=False)
    gallery = Gallery(image, text, found.pairs_P2)
    assert calibration_beside(gallery, (len(image), len(text)), JUDGE, "cpu") == naive(found)


def test_only_a_model_with_a_bias_has_probabilities() -> None:
    scale, bias = torch.tensor(math.log(112)), torch.tensor(-16.5)
    assert PairProbability.of({"logit_scale": scale}) is None
    found = PairProbability.of({"logit_scale": scale, "logit_bias": bias})
    assert found is not None
    assert found.scale == pytest.approx(112)
    assert found.bias == -16.5


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    growing = GATHER_GROWING["unite"](parts_of(0))
    assert calibrations(growing, JUDGE, "cuda") == calibrations(growing, JUDGE, "cpu")
