"""Whether one run is better than another by more than the spread over their seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vlcpctl.report.scores.summary import Spread

LEVEL = 0.05  # of the two-sided test: how often two equal runs are taken to differ
MIN_SEEDS = 3


def is_ahead(best: Spread, other: Spread, *, are_paired: bool) -> bool:
    """Whether the means differ by Student's t, two-sided at `LEVEL`; never below `MIN_SEEDS`.

    Paired values, of the same seeds in the same order, are compared seed by seed; others by Welch's
    t (Biometrika 1947), which does not take the deviations to be equal. Without any deviation,
    every difference counts.

    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=True)
    True
    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=False)
    False
    """
    if min(len(best.values), len(other.values)) < MIN_SEEDS:
        return False
    difference = abs(best.mean - other.mean)
    if are_paired:
        pairs = zip(best.values, other.values, strict=True)
        samples = [Spread(tuple(one - another for one, another in pairs))]
    else:
        samples = [best, other]
    variances = [_variance_of_mean(sample) for sample in samples]
    variance = math.fsum(variances)
    if variance == 0.0:
        return difference > 0.0
    # Of one sample these are its values less one; of two, Welch's.
    freedom = variance**2 / math.fsum(
        part**2 / (len(sample.values) - 1) for part, sample in zip(variances, samples, strict=True)
    )
    return difference > _quantile(freedom) * math.sqrt(variance)


def bold_note(seeds: Sequence[int]) -> str:
    """What bold means in a table of runs with these numbers of seeds."""
    if max(seeds, default=1) < MIN_SEEDS:
        return f"no number is bold: that takes {MIN_SEEDS} seeds"
    return (
        f"bold: better than every other of its group by Student's t over {MIN_SEEDS} or more "
        f"seeds, paired where they are the same ({100 * LEVEL:.0f} %, two-sided); equal numbers "
        "share it"
    )


def seed_note(seeds: Sequence[int]) -> str:
    """What the numbers of runs with these numbers of seeds are; empty if all have one."""
    counts = set(seeds)
    if counts <= {1}:
        return ""
    if len(counts) > 1:
        return f"mean and sample standard deviation, {min(counts)} to {max(counts)} seeds"
    return f"mean and sample standard deviation, {counts.pop()} seeds"


def _variance_of_mean(sample: Spread) -> float:
    """The square of the standard error of the mean."""
    return 0.0 if sample.sd is None else sample.sd**2 / len(sample.values)


def _quantile(freedom: float) -> float:
    """Student's t that two equal runs exceed in either direction with a probability of `LEVEL`.

    >>> _quantile(2)
    4.30
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))
