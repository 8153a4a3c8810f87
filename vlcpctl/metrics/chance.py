"""What chance alone shows: how large a drop must be before the samples of a guard can show it.

A guard is a sample of the items that users ask for, so that its drop D is an estimate with a
standard error, and a model that lost nothing shows a drop above any small bound now and then. A
loss counts as found if it is above the bound b and above what chance shows: D > b and D > z se,
where z is so large that K comparisons of models that lost nothing exceed it `false_alarms` times
together (Bonferroni).
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

WEEKS_A_YEAR = 52
PER_REPORT = 0.02  # false alarms of a report that is not one of a year's: about one in 50 reports
FEWEST_SAMPLES = 200  # from which percentiles of resamples are honest ends of an interval

_Z95 = NormalDist().inv_cdf(0.975)
_Z80 = NormalDist().inv_cdf(0.8)
_ADDED = 50.0  # points that one more sample might lose, and another gain


def critical_value(comparisons: int, false_alarms: float) -> float:
    """How many standard errors a drop has to exceed: z = Phi^-1(1 - A / K), at least 0.

    `comparisons` is K, the number of drops that are judged together, and `false_alarms` is A, how
    many of them may be taken for a loss by chance, on average over reports: 1 / 52 is one a year of
    weekly reports.

    >>> round(critical_value(2, 1 / WEEKS_A_YEAR), 2), round(critical_value(10, 1 / 52), 2)
    (2.34, 2.89)
    """
    share = false_alarms / max(1, comparisons)
    return max(0.0, NormalDist().inv_cdf(1 - share)) if share < 1 else 0.0


def smallest_seen(bound: float, error: float, z: float) -> float:
    """The true loss, in points, that is found in 80 of 100 cases: max(b, z se) + 0.84 se.

    >>> round(smallest_seen(2.0, 15 / 321**0.5, critical_value(2, 1 / WEEKS_A_YEAR)), 1)
    2.7
    """
    return max(bound, z * error) + _Z80 * error


def margin_of(error: float) -> float:
    """Half the width, in points, of a 95 % interval of a normal estimate: 1.96 se."""
    return _Z95 * error


def few_samples_margin(losses_N: NDArray[np.float64]) -> float:
    """Half the width of a 95 % interval of the mean of a few samples' losses (N,), in points.

    As if one more sample had lost 50 points and one had gained as many:
    1.96 sqrt(sum (d - D)^2 + 2 * 50^2) / N. Where no sample moved, a bootstrap would say that the
    interval is from 0 to 0; this one says what a sample that was not drawn might have lost.

    >>> round(few_samples_margin(np.zeros(5)), 1)
    27.7
    """
    spread = float(np.sum((losses_N - losses_N.mean()) ** 2))
    return _Z95 * float(np.sqrt(spread + 2 * _ADDED**2)) / len(losses_N)


def loss_at_chance(batch: int, is_sigmoid: bool) -> float:
    """The least contrastive loss of a model that gives all pairs of a batch the same similarity.

    >>> round(loss_at_chance(64, False), 2), round(loss_at_chance(64, True), 2)
    (4.16, 5.15)
    """
    negatives = (batch - 1) * math.log(batch / (batch - 1)) if is_sigmoid else 0.0
    return math.log(batch) + negatives
