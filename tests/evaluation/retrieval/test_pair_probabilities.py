"""Calibration in galleries: pair by pair, part by part, and whatever is computed at once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from vlcpctl.evaluation.retrieval import pair_probabilities
from vlcpctl.evaluation.retrieval.pair_probabilities import (
    PairProbability,
    calibration_beside,
    calibrations,
)
from vlcpctl.evaluation.search.galleries import DUPLICATES, Captioned, Embeddings, Gallery, gather
from vlcpctl.metrics.calibration import calibration, tally

JUDGE = PairProbability(10.0, -7.0)

every_handling = pytest.mark.parametrize("duplicates", DUPLICATES)


def gallery_of(
    seed: int, duplicates: str, count: int = 3, size: int = 9
) -> tuple[Gallery, Embeddings]:
    """The first parts of some that share images and texts, and pair what others had apart."""
    random = np.random.default_rng(seed)
    images, texts = (unit(random.standard_normal((12, 4))) for _ in range(2))
    parts, vectors = [], []
    for _ in range(3):
        rows = random.integers(0, 12, size).tolist()
        captions = [[str(row), str(random.integers(0, 12))] for row in rows]
        parts.append(Captioned.of(rows, captions))
        own = [int(name) for name in parts[-1].texts.names]
        vectors.append(Embeddings(images[parts[-1].images.names], texts[own]))
    gallery = gather(parts[:count], duplicates)
    return gallery, gallery.vectors(vectors[:count])


def unit(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found.astype(np.float32)


def naive(
    gallery: Gallery, vectors: Embeddings, judged: set[tuple[int, int]] | None = None
) -> dict[str, float]:
    """One pair at a time, in Python's floats; of `judged` pairs only."""
    true = set(map(tuple, gallery.pairs_P2.tolist()))
    found: dict[bool, list[float]] = {True: [], False: []}
    for row, image in enumerate(vectors.image_ID[:].tolist()):
        for column, text in enumerate(vectors.text_TD[:].tolist()):
            if judged is None or (row, column) in judged:
                score = math.fsum(x * y for x, y in zip(image, text, strict=True))
                p = 1 / (1 + math.exp(-(JUDGE.scale * score + JUDGE.bias)))
                found[(row, column) in true].append(p)
    every = tally(np.array([*found[True], *found[False]]))
    return calibration(every, tally(np.array(found[True])).count_K)


@every_handling
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_every_growing_gallery_is_judged(duplicates: str, seed: int) -> None:
    found = calibrations(*gallery_of(seed, duplicates), JUDGE, "cpu")
    assert found == [naive(*gallery_of(seed, duplicates, end)) for end in (1, 2, 3)]
    assert len({one["pair_calibration"] for one in found}) == 3


def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = gallery_of(0, "unite")
    whole = calibrations(*growing, JUDGE, "cpu")
    monkeypatch.setattr(pair_probabilities, "_TILE", 2)
    assert calibrations(*growing, JUDGE, "cpu") == whole


def test_distractors_are_wrong_for_the_own_entries_alone() -> None:
    growing, own = gallery_of(0, "unite")
    images, texts = map(len, own)
    one_part = {"part_P": 0 * growing.part_P, "ends_M2": growing.ends_M2[-1:]}
    gallery = replace(growing, **one_part)
    more = unit(np.random.default_rng(9).standard_normal((5, 4)))
    beside = Embeddings(*(np.concatenate([side[:], more]) for side in own))
    for side in beside:
        side.setflags(write=False)  # as if it were mapped
    judged = {
        (row, column)
        for row in range(images + 5)
        for column in range(texts + 5)
        if row < images or column < texts
    }
    found = calibration_beside(gallery, beside, JUDGE, "cpu")
    assert found == naive(gallery, beside, judged)
    assert found not in (naive(gallery, beside), naive(gallery, own))
    assert calibration_beside(gallery, own, JUDGE, "cpu") == naive(gallery, own)


def test_only_a_model_with_a_bias_has_probabilities() -> None:
    scale, bias = torch.tensor(math.log(112)), torch.tensor(-16.5)
    assert PairProbability.of({"logit_scale": scale}) is None
    found = PairProbability.of({"logit_scale": scale, "logit_bias": bias})
    assert found is not None
    assert found.scale == pytest.approx(112)
    assert found.bias == -16.5


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    growing = gallery_of(0, "unite")
    assert calibrations(*growing, JUDGE, "cuda") == calibrations(*growing, JUDGE, "cpu")
