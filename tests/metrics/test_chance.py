"""What chance alone shows: critical values, the smallest loss that is found, and margins."""

import math

import numpy as np
import pytest

from vlcpctl.metrics.chance import (
    WEEKS_A_YEAR,
    critical_value,
    few_samples_margin,
    margin_of,
    smallest_seen,
)

A_YEAR = 1 / WEEKS_A_YEAR


@pytest.mark.parametrize(
    ("comparisons", "z"),
    [(1, 2.07), (2, 2.34), (4, 2.59), (6, 2.73), (10, 2.89), (20, 3.10), (50, 3.36), (100, 3.55)],
)
def test_critical_values_of_one_false_alarm_a_year(comparisons: int, z: float) -> None:
    assert critical_value(comparisons, A_YEAR) == pytest.approx(z, abs=0.005)


def test_alarms_that_nobody_minds_need_no_evidence() -> None:
    assert critical_value(1, 0.5) == pytest.approx(0.0, abs=1e-12)
    assert critical_value(2, 5.0) == 0.0


def test_as_many_losses_exceed_it_by_chance_as_it_says() -> None:
    drops = np.random.default_rng(0).normal(size=(200_000, 4))
    any_exceeds = (drops > critical_value(4, 0.02)).any(axis=1)
    assert any_exceeds.mean() == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize(
    ("guards", "seen"),
    [
        (1, {50: 6.75, 100: 4.77, 200: 3.38, 321: 2.70, 1000: 2.40, 5000: 2.18}),
        (5, {50: 7.92, 100: 5.60, 200: 3.96, 321: 3.13, 1000: 2.40, 5000: 2.18}),
    ],
)
def test_the_smallest_loss_seen_falls_with_the_number_of_samples(
    guards: int, seen: dict[int, float]
) -> None:
    z = critical_value(2 * guards, A_YEAR)
    found = {n: smallest_seen(2.0, 15 / math.sqrt(n), z) for n in seen}
    assert found == pytest.approx(seen, abs=0.01)


def test_losses_of_the_size_that_is_seen_are_found_in_80_of_100_cases() -> None:
    error, z = 1.5, critical_value(2, A_YEAR)
    loss = smallest_seen(2.0, error, z)
    drops = np.random.default_rng(0).normal(loss, error, 100_000)
    assert np.mean((drops > 2.0) & (drops > z * error)) == pytest.approx(0.8, abs=0.005)


def test_the_margin_of_few_samples_is_never_zero_and_nears_the_usual_one() -> None:
    assert few_samples_margin(np.zeros(5)) == pytest.approx(1.96 * math.sqrt(5000) / 5, abs=0.01)
    losses = np.random.default_rng(0).normal(2, 15, 100_000)
    usual = margin_of(losses.std() / math.sqrt(len(losses)))
    assert few_samples_margin(losses) == pytest.approx(usual, rel=1e-3)
