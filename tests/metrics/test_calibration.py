"""Calibration of probabilities, against its definition pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.metrics.calibration import BINS, calibration, lowest, tally

pairs = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40).filter(
    lambda found: any(is_true for _, is_true in found)
)


def measured(judged: list[tuple[float, bool]]) -> dict[str, float]:
    every = tally(np.array([p for p, _ in judged]))
    return calibration(every, tally(np.array([p for p, is_true in judged if is_true])).count_K)


def by_definition(judged: list[tuple[float, bool]]) -> tuple[float, float, float]:
    """Recall, precision and calibration, with the error of each bin weighted as in the ECE."""
    right = [is_true for p, is_true in judged if p >= 0.5]
    true = sum(is_true for _, is_true in judged)
    error = 0.0
    for number in range(BINS):
        members = [one for one in judged if min(int(one[0] * BINS), BINS - 1) == number]
        if members:
            accuracy = sum(is_true for _, is_true in members) / len(members)
            confidence = sum(p for p, _ in members) / len(members)
            error += len(members) / len(judged) * abs(accuracy - confidence)
    promised = sum(p for p, _ in judged)
    precision = 100 * sum(right) / len(right) if right else 0.0
    shared = 1 - error * len(judged) / (promised + true)
    return 100 * sum(right) / true, precision, 100 * shared


@given(pairs)
def test_it_is_the_definition(judged: list[tuple[float, bool]]) -> None:
    found = measured(judged)
    assert list(found) == ["pair_recall", "pair_precision", "pair_calibration"]
    assert tuple(found.values()) == pytest.approx(by_definition(judged), abs=1e-6)
    assert all(0 <= value <= 100 for value in found.values())


def test_probabilities_that_hold_are_calibrated() -> None:
    found = measured([(0.75, True)] * 3 + [(0.75, False)] + [(0.25, True)] + [(0.25, False)] * 3)
    assert found == {"pair_recall": 75, "pair_precision": 75, "pair_calibration": 100}


def test_a_model_that_refuses_every_pair_promises_none() -> None:
    found = measured([(0.0, True)] + [(0.0, False)] * 999)
    assert found == {"pair_recall": 0, "pair_precision": 0, "pair_calibration": 0}


def test_obvious_negatives_do_not_hide_what_is_wrong() -> None:
    """The expected calibration error of these is 0.0004: every true pair is promised at 0.6."""
    judged = [(0.6, True)] * 10 + [(0.0, False)] * 9990
    assert measured(judged)["pair_calibration"] == pytest.approx(75)


def test_the_threshold_is_accepted_and_one_is_in_the_highest_bin() -> None:
    assert measured([(0.5, True), (np.nextafter(0.5, 0), False)])["pair_precision"] == 100
    assert tally(np.array([1.0])).count_K.tolist() == [0] * 9 + [1]


def test_a_summary_of_the_lowest_bin_is_its_tally() -> None:
    low = np.array([0.01, 0.02])
    one, other = tally(low), lowest(2, float(low.sum()))
    assert np.array_equal(one.count_K, other.count_K)
    assert np.array_equal(one.sum_K, other.sum_K)
