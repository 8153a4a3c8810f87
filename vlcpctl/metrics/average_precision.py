"""Mean average precision at N, in percent, from the hits in each query's ranked list.

Shapes: Q queries, K places of a list, the query itself left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcpctl.metrics.recall import CUTOFFS

Hits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Precisions = NDArray[np.float64]

DEFAULT_VARIANT = "eq11"
_LISTED = 10  # items that the CTP authors' code keeps before it removes the query


@dataclass(frozen=True)
class RankedHits:
    """The ranked lists of some queries: which places are hits, and what the gallery contains.

    A query that is itself in the gallery was removed from its list, where it came first.
    """

    hit_QK: Hits
    right_Q: Counts  # right answers in the gallery, the query itself not counted
    is_inside_Q: Hits  # whether the gallery holds the query itself


def eq11(ranked: RankedHits, cutoff: int) -> Precisions:
    """(Q,) precisions at the hits of the first `cutoff` places over their number (CTP, eq. 11).

    0 without a hit. m_q of the equation is the number of hits in the list, not in the gallery:
    this reproduces the paper's tables.

    >>> ranked = RankedHits(np.array([[False, False, True, True]]), np.array([5]), np.array([True]))
    >>> eq11(ranked, 10)  # (1/3 + 2/4) / 2
    array([0.41666667])
    """
    hit_QK = ranked.hit_QK[:, :cutoff]
    return _over(hit_QK, hit_QK.sum(axis=1))


def min_rn(ranked: RankedHits, cutoff: int) -> Precisions:
    """(Q,) the same, divided by the most hits that are possible: min(right answers, cutoff).

    >>> ranked = RankedHits(np.array([[False, False, True, True]]), np.array([5]), np.array([True]))
    >>> min_rn(ranked, 10)  # (1/3 + 2/4) / 5
    array([0.16666667])
    """
    return _over(ranked.hit_QK[:, :cutoff], np.minimum(ranked.right_Q, cutoff))


def ctp(ranked: RankedHits, cutoff: int) -> Precisions:
    """(Q,) eq. 11 as implemented by the CTP authors, which considers fewer places.

    At most as many as the class has items, including the query; and at most ten, one of which the
    query takes if it is in the gallery. The class size is that in the gallery searched; their code
    takes it from the gallery of all tasks, including future ones.

    >>> ranked = RankedHits(np.array([[True, False, True]]), np.array([2]), np.array([False]))
    >>> ctp(ranked, 5), eq11(ranked, 5)  # a class of two: the third place is ignored
    (array([1.]), array([0.83333333]))
    """
    inside_Q = ranked.is_inside_Q.astype(np.int64)
    limit_Q = np.minimum(np.minimum(cutoff, ranked.right_Q + inside_Q), _LISTED - inside_Q)
    hit_QK = ranked.hit_QK[:, :cutoff]
    hit_QK = hit_QK & (np.arange(hit_QK.shape[1]) < limit_Q[:, None])
    return _over(hit_QK, hit_QK.sum(axis=1))


VARIANTS: dict[str, Callable[[RankedHits, int], Precisions]] = {
    "eq11": eq11,
    "ctp": ctp,
    "min-rn": min_rn,
}


def mean_average_precisions(ranked: RankedHits, variant: str = DEFAULT_VARIANT) -> dict[str, float]:
    """`map_1`, `map_5` and `map_10` of these queries, in percent.

    >>> hits = np.array([[True, False], [False, True]])
    >>> mean_average_precisions(RankedHits(hits, np.array([1, 1]), np.array([True, True])))
    {'map_1': 50.0, 'map_5': 75.0, 'map_10': 75.0}
    """
    of = VARIANTS[variant]
    return {f"map_{cutoff}": 100 * float(np.mean(of(ranked, cutoff))) for cutoff in CUTOFFS}


def count_touched(worst: RankedHits, best: RankedHits, variant: str = DEFAULT_VARIANT) -> int:
    """The number of queries whose precision at some cut-off depends on how ties are broken.

    >>> lists = [np.array([[False, True], [True, True]]), np.array([[True, False], [True, True]])]
    >>> worst, best = (RankedHits(hits, np.array([1, 2]), np.array([True, True])) for hits in lists)
    >>> count_touched(worst, best)
    1
    """
    of = VARIANTS[variant]
    changes = [of(worst, cutoff) != of(best, cutoff) for cutoff in CUTOFFS]
    return int(np.count_nonzero(np.any(changes, axis=0)))


def _over(hit_QK: Hits, divisor_Q: Counts) -> Precisions:
    """The sum of the precisions at the hits over a divisor, which is 0 only without a hit."""
    precision_QK = np.cumsum(hit_QK, axis=1) / np.arange(1, hit_QK.shape[1] + 1)
    sums_Q: Precisions = np.sum(precision_QK * hit_QK, axis=1)
    return sums_Q / np.maximum(divisor_Q, 1)
