"""Whether one run is better than another by more than the spread over their seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vlcpctl.report.scores.summary import Spread

ERRORS = 2  # standard errors that a difference has to exceed


def is_ahead(best: Spread, other: Spread, *, are_paired: bool) -> bool:
    """Whether the means differ by more than twice the standard error of their difference.

    Paired values, of the same seeds in the same order, are compared seed by seed. Otherwise the
    errors of both means add up; of one value, the deviation is taken to be that of the other run.
    Without any deviation, every difference counts.

    >>> is_ahead(Spread((52.0, 42.0)), Spread((50.0, 40.0)), are_paired=True)
    True
    >>> is_ahead(Spread((52.0, 42.0)), Spread((50.0, 40.0)), are_paired=False)
    False
    """
    difference = abs(best.mean - other.mean)
    if are_paired:
        pairs = zip(best.values, other.values, strict=True)
        differences = Spread(tuple(one - another for one, another in pairs))
        return difference > ERRORS * _error(differences, differences.sd)
    one, another = best.sd, other.sd
    errors = (
        _error(best, another if one is None else one),
        _error(other, one if another is None else another),
    )
    return difference > ERRORS * math.hypot(*errors)


def bold_note(seeds: Sequence[int]) -> str:
    """What bold means in a table of runs with these numbers of seeds."""
    if max(seeds, default=1) < 2:
        return "bold: the best number of its group; of one seed, so its spread is not known"
    return (
        f"bold: better than every other of its group by more than {ERRORS} standard errors of the "
        "difference, paired over seeds; equal numbers share it"
    )


def seed_note(seeds: Sequence[int]) -> str:
    """What the numbers of runs with these numbers of seeds are; empty if all have one."""
    counts = set(seeds)
    if counts <= {1}:
        return ""
    if len(counts) > 1:
        return f"mean and sample standard deviation, {min(counts)} to {max(counts)} seeds"
    return f"mean and sample standard deviation, {counts.pop()} seeds"


def _error(values: Spread, sd: float | None) -> float:
    """The standard error of the mean."""
    return 0.0 if sd is None else sd / math.sqrt(len(values.values))
