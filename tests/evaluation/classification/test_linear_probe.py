"""The linear probe finds scikit-learn's minimum, never counts ties as hits, and is reproducible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vlcpctl.evaluation.classification.linear_probe import (
    LOOSE,
    TIGHT,
    LabelledFeatures,
    Probe,
    accuracy,
    fitted,
    full_batches,
    number_of,
    probe_ranks,
)


def clouds(seed: int = 0, images: int = 200, classes: int = 5, width: int = 12) -> LabelledFeatures:
    """Unit features around a centre for each class, close enough to be confused."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, images)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    features = centres[labels] + 2 * draw.normal(size=(images, width))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return LabelledFeatures(
        torch.tensor(features.astype(np.float32)), torch.tensor(labels), classes
    )


def sklearn_fit(data: LabelledFeatures, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # takes seconds

    count = len(data.label_N)
    model = LogisticRegression(C=1 / (strength * count), tol=1e-10, max_iter=10_000)
    return model.fit(data.feature_ND.double().numpy(), data.label_N.numpy())


def loss(probe: Probe, data: LabelledFeatures, strength: float) -> float:
    """By hand, in numpy."""
    logits = data.feature_ND.double().numpy() @ probe.weight_CD.numpy().T + probe.bias_C.numpy()
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    own = log_p[np.arange(len(logits)), data.label_N.numpy()]
    return float(-own.mean() + strength / 2 * np.square(probe.weight_CD.numpy()).sum())


@pytest.mark.parametrize("strength", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_l_bfgs_finds_what_scikit_learn_finds(strength: float) -> None:
    data, other = clouds(0), clouds(1, images=300)
    expected, probe = sklearn_fit(data, strength), fitted(data, strength)
    assert probe.weight_CD.numpy() == pytest.approx(expected.coef_, rel=2e-4, abs=2e-4)
    chances = torch.softmax(probe.logits(other.feature_ND), 1).numpy()
    features = other.feature_ND.double().numpy()
    assert chances == pytest.approx(expected.predict_proba(features), abs=2e-6)
    theirs = Probe(torch.tensor(expected.coef_), torch.tensor(expected.intercept_))
    assert loss(probe, data, strength) < loss(theirs, data, strength) + 1e-11
    score = 100 * expected.score(features, other.label_N.numpy())
    assert accuracy(probe, other) == pytest.approx(score)
    assert 30 < score < 95


def test_the_minimum_is_one_wherever_it_is_started_from() -> None:
    data = clouds()
    fresh = fitted(data, 1e-3)
    warm = fitted(data, 1e-3, start=fitted(data, 1e-1))
    assert torch.allclose(fresh.weight_CD, warm.weight_CD, atol=1e-5)
    assert loss(fresh, data, 1e-3) == pytest.approx(loss(warm, data, 1e-3), abs=1e-12)
    assert fresh.steps > 1


@pytest.mark.parametrize("strength", [1e-1, 1e-3, 1e-6])
def test_a_loose_fit_is_near_the_minimum(strength: float) -> None:
    data = clouds()
    tight, loose = (fitted(data, strength, None, tolerance) for tolerance in (TIGHT, LOOSE))
    assert loose.steps < tight.steps
    assert loss(loose, data, strength) < loss(tight, data, strength) + 1e-6


def test_no_step_away_from_the_minimum_is_better() -> None:
    data = clouds()
    probe = fitted(data, 1e-2)
    least = loss(probe, data, 1e-2)
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        away = 1e-3 * torch.randn(probe.weight_CD.shape, generator=draw, dtype=torch.float64)
        assert loss(Probe(probe.weight_CD + away, probe.bias_C), data, 1e-2) > least


def test_images_in_several_chunks_give_the_same_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    data = clouds()
    whole = fitted(data, 1e-2)
    monkeypatch.setattr("vlcpctl.evaluation.classification.linear_probe._CHUNK", 33)
    pieces = fitted(data, 1e-2)
    assert torch.allclose(whole.weight_CD, pieces.weight_CD, atol=1e-6)
    assert probe_ranks(whole, data)[0].tolist() == probe_ranks(pieces, data)[0].tolist()


def test_a_fit_is_the_same_bits_every_time() -> None:
    one, other = (fitted(clouds(), 1e-4) for _ in range(2))
    assert torch.equal(one.weight_CD, other.weight_CD)
    assert torch.equal(one.bias_C, other.bias_C)


def test_a_tie_is_never_a_hit() -> None:
    probe = Probe(torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    features = torch.tensor([[1.0, 1.0 - 5e-6, 0], [1, 0.5, 0], [0, 0, 0]], dtype=torch.float64)
    worst, best = probe_ranks(probe, LabelledFeatures(features, torch.tensor([0, 0, 1]), 3))
    assert worst.tolist() == [2, 1, 3]
    assert best.tolist() == [1, 1, 1]
    assert accuracy(probe, LabelledFeatures(features, torch.tensor([0, 0, 1]), 3)) == pytest.approx(
        100 / 3
    )


def test_a_fit_that_diverged_is_known_and_hits_nothing() -> None:
    data = clouds()
    found = fitted(data, 0.1)
    lost = Probe(found.weight_CD * torch.nan, found.bias_C)
    assert (found.is_finite, lost.is_finite) == (True, False)
    assert probe_ranks(lost, data)[0].tolist() == [5] * 200


def test_classes_without_images_get_no_place() -> None:
    assert number_of(np.array([4, 1, 1]), 6, "").tolist() == [-1, 0, -1, -1, 1, -1]


@pytest.mark.parametrize("part", [1, 3, 4, 7, 50])
@pytest.mark.parametrize(
    ("images", "size", "sizes"),
    [(10, 4, [4, 4]), (8, 4, [4, 4]), (3, 4, [3]), (4, 4, [4]), (0, 4, [])],
)
def test_the_rest_of_an_epoch_is_dropped_unless_it_is_all(
    images: int, size: int, sizes: list[int], part: int
) -> None:
    features, labels = torch.arange(2 * images).view(images, 2).float(), torch.arange(images)
    parts = list(zip(features.split(part), labels.split(part), strict=True)) if images else []
    found = list(full_batches(parts, size))
    assert [len(label) for _, label in found] == sizes
    if found:
        assert torch.equal(torch.cat([one for one, _ in found]), features[: sum(sizes)])
        assert torch.equal(torch.cat([one for _, one in found]), labels[: sum(sizes)])
