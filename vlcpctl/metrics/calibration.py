"""Whether the probabilities of a sigmoid loss hold: every image with every text of a gallery.

A model that is trained with the loss of SigLIP (Zhai et al., ICCV 2023) says of an image x and a
text y with which probability p = sigmoid(scale x.y + bias) they are a pair. Shapes: K bins of p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float64]
Counts = NDArray[np.int64]

METRICS = ("pair_recall", "pair_precision", "pair_calibration")
BINS = 10  # of equal width, from 0 to 1; an edge is in the bin above it
THRESHOLD = BINS // 2  # the first bin of what is accepted: p >= 0.5
_DECIMALS = 6  # more depend on the order of the sums


@dataclass(frozen=True)
class Judged:
    """Pairs by their probability: their number (K,), and the sum of their probabilities (K,)."""

    count_K: Counts
    sum_K: Probabilities

    def __add__(self, other: Judged) -> Judged:
        return Judged(self.count_K + other.count_K, self.sum_K + other.sum_K)


def tally(probabilities: Probabilities) -> Judged:
    """Sort probabilities, in an array of any shape, into bins.

    >>> found = tally(np.array([0.05, 0.5, 0.55, 1.0]))
    >>> found.count_K, found.sum_K[5:6]
    (array([1, 0, 0, 0, 0, 2, 0, 0, 0, 1]), array([1.05]))
    """
    flat = probabilities.ravel()
    bins = np.minimum((flat * BINS).astype(np.int64), BINS - 1)
    sum_K = np.bincount(bins, flat, BINS).astype(np.float64)
    return Judged(np.bincount(bins, minlength=BINS), sum_K)


def lowest(count: int, total: float) -> Judged:
    """So many probabilities of the lowest bin, given their sum."""
    is_first_K = np.arange(BINS) == 0
    return Judged(count * is_first_K, total * is_first_K)


def calibration(every: Judged, true_K: Counts) -> dict[str, float]:
    """`pair_recall`, `pair_precision` and `pair_calibration`, in percent; more is better.

    `every` is all pairs of an image and a text, and `true_K` the number of those, at least one,
    that belong together. Recall and precision are of the pairs with p >= 0.5; where there are none,
    precision is 0, as scikit-learn has it. With P(k) the sum of the probabilities of a bin and T(k)
    its true pairs, calibration is

        100 (1 - sum_k |P(k) - T(k)| / sum_k (P(k) + T(k))).

    The upper sum is the expected calibration error (Naeini et al., AAAI 2015) times the number of
    all pairs. That number, of which nearly all are obviously no pairs, would make it next to zero
    for every model. Twice the shared part of promised and true pairs remains, as a share of both.

    >>> found = calibration(tally(np.array([0.9, 0.6, 0.6, 0.1])), np.array([0] * 6 + [1, 0, 0, 1]))
    >>> found["pair_recall"], found["pair_precision"], found["pair_calibration"]
    (100.0, 66.67, 90.48)
    """
    true, accepted = int(true_K.sum()), int(every.count_K[THRESHOLD:].sum())
    right = int(true_K[THRESHOLD:].sum())
    apart = float(np.abs(every.sum_K - true_K).sum()) / (float(every.sum_K.sum()) + true)
    return {
        "pair_recall": 100 * right / true,
        "pair_precision": 100 * right / max(accepted, 1),
        "pair_calibration": round(100 * (1 - apart), _DECIMALS),
    }
