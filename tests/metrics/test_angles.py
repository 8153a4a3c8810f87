"""Angles between two models, one pair of vectors at a time and all at once."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcpctl.metrics.angles import (
    CHANGE_BINS,
    ROTATION_BINS,
    pair_changes,
    rotations,
    self_angle_changes,
    shares,
    tally,
)


def vectors(seed: int, count: int = 11, width: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


def naive_angle(one: np.ndarray, other: np.ndarray) -> float:
    """In degrees, from the cosine."""
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.hypot(*one) * math.hypot(*other)
    return math.degrees(math.acos(max(-1.0, min(1.0, dot / lengths))))


def naive_bins(angles: list[float], ends: tuple[int, ...]) -> list[float]:
    """Percent in [0, a], (a, b], ..."""
    lows = [-1.0, *ends[:-1]]
    found = [
        sum(low < angle <= end for angle in angles) for low, end in zip(lows, ends, strict=True)
    ]
    return [100 * count / len(angles) for count in found]


@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_self_angles_are_those_of_every_two_samples(seed: int, count: int, block: int) -> None:
    then, now = vectors(seed, count), vectors(seed + 1, count)
    expected = [
        abs(naive_angle(then[a], then[b]) - naive_angle(now[a], now[b]))
        for a, b in combinations(range(count), 2)
    ]
    found = self_angle_changes(then, now, block)
    assert found.count == len(expected) == count * (count - 1) // 2
    assert found.mean == pytest.approx(np.mean(expected))
    assert shares(found.counts, CHANGE_BINS) == pytest.approx(naive_bins(expected, CHANGE_BINS))


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_rotations_are_angles_between_a_sample_then_and_now(seed: int) -> None:
    then, now = vectors(seed), vectors(seed + 1)
    expected = [naive_angle(a, b) for a, b in zip(then, now, strict=True)]
    assert rotations(then, now) == pytest.approx(expected)
    found = shares(tally(rotations(then, now)).counts, ROTATION_BINS)
    assert found == pytest.approx(naive_bins(expected, ROTATION_BINS))


def test_angles_between_modalities_are_compared_pair_by_pair() -> None:
    image, text, later_image, later_text = (vectors(seed) for seed in range(4))
    expected = [
        abs(naive_angle(*then) - naive_angle(*now))
        for then, now in zip(
            zip(image, text, strict=True), zip(later_image, later_text, strict=True), strict=True
        )
    ]
    found = pair_changes((image, text), (later_image, later_text))
    assert found == pytest.approx(expected)


def test_a_space_that_turns_as_a_whole_keeps_its_self_angles() -> None:
    then = vectors(0)
    turn, _ = np.linalg.qr(vectors(1, 5))
    found = self_angle_changes(then, then @ turn)
    assert found.counts[0] == found.count
    assert found.mean < 1e-5
    assert rotations(then, then @ turn).mean() > 10


def test_what_did_not_turn_is_at_zero_even_in_single_precision() -> None:
    then = vectors(0).astype(np.float32)
    assert rotations(then, then.copy()).max() == 0
    assert rotations(then, 3 * then).max() < 1e-5  # an arc cosine in float32 would say 0.02


def test_a_bin_holds_its_upper_end() -> None:
    edges = tally(np.array([0.0, 5.0, 5.0001, 10.0, 15.0, 20.0, 20.5, 180.0]))
    assert shares(edges.counts, CHANGE_BINS) == [25.0, 25.0, 12.5, 12.5, 25.0]


def test_one_sample_has_no_self_angle() -> None:
    found = self_angle_changes(vectors(0, 1), vectors(1, 1))
    assert (found.count, found.total) == (0, 0.0)
