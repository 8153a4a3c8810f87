"""Recall at K, in percent, from the rank of the best right answer of each query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.int64]

CUTOFFS = (1, 5, 10)


def recall_at(ranks: Ranks, cutoff: int) -> float:
    """Share of queries whose best right answer is among the first `cutoff`, in percent.

    >>> recall_at(np.array([1, 3, 11]), 5)
    66.67
    """
    return 100 * int(np.count_nonzero(ranks <= cutoff)) / len(ranks)


def recalls(i2t: Ranks, t2i: Ranks) -> dict[str, float]:
    """The recalls of both directions, each direction's mean, and `rm`, the mean of all six.

    >>> found = recalls(np.array([1, 3]), np.array([1, 1]))
    >>> found["i2t_r1"], found["t2i_r1"], found["rm"]
    (50.0, 100.0, 91.67)
    """
    one_way, other_way = _direction("i2t", i2t), _direction("t2i", t2i)
    both = [one_way["i2t_rmean"], other_way["t2i_rmean"]]
    return {**one_way, **other_way, "rm": float(np.mean(both))}


def count_touched(worst: Ranks, best: Ranks) -> int:
    """The number of queries that are a hit at some cut-off only if ties are broken in their favour.

    >>> count_touched(np.array([2, 5, 3]), np.array([1, 5, 2]))  # 3 or 2 is a hit at 5 and 10 alike
    1
    """
    changes = [(best <= cutoff) & (worst > cutoff) for cutoff in CUTOFFS]
    return int(np.count_nonzero(np.any(changes, axis=0)))


def _direction(name: str, ranks: Ranks) -> dict[str, float]:
    found = {f"{name}_r{cutoff}": recall_at(ranks, cutoff) for cutoff in CUTOFFS}
    return {**found, f"{name}_rmean": float(np.mean(list(found.values())))}
