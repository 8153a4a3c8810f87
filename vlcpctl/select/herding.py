"""Herding (Welling, 2009): pick items so that the mean of any first few is close to that of all."""

from __future__ import annotations

import numpy as np

_TURNS_PER_ROW = 100  # after which `herd_again` stops drawing


def herd(features: np.ndarray, count: int) -> np.ndarray:
    """(count,) indices of the rows picked, best first: a prefix is the answer for a smaller count.

    `features` are (N, D), L2-normalised. A row is picked at most once, so equal rows cannot cause
    an endless loop.

    >>> herd(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2)
    array([2, 1])
    """
    features = np.ascontiguousarray(features, dtype=np.float32)
    count = min(count, len(features))
    mean = features.mean(axis=0, dtype=np.float64)
    debt = mean.copy()  # what the picked rows still lack to have this mean: in float64, a long sum
    lost = np.zeros(len(features), dtype=np.float32)  # -inf where a row was picked
    picked = np.empty(count, dtype=np.int64)
    for turn in range(count):
        row = int(np.argmax(features @ debt.astype(np.float32) + lost))
        picked[turn] = row
        lost[row] = -np.inf
        debt += mean - features[row]
    return picked


def herd_again(features: np.ndarray, count: int) -> np.ndarray:
    """(count,) indices of the rows picked, best first, where a row may be drawn more than once.

    This is the CTP authors' loop: a row drawn again does not appear twice, but its feature is added
    again, so that later picks differ from those of `herd`. Rows that the loop does not reach, such
    as duplicates, follow in the order of `herd` after 100 draws per row (ours; theirs never ends).

    >>> herd_again(np.array([[1.0, 0.0], [1.0, 0.0]]), 2)
    array([0, 1])
    """
    features = np.ascontiguousarray(features, dtype=np.float32)
    count = min(count, len(features))
    mean = features.mean(axis=0, dtype=np.float64)
    debt = mean.copy()
    picked: dict[int, None] = {}  # a set that keeps the order
    for _ in range(_TURNS_PER_ROW * count):
        if len(picked) == count:
            break
        row = int(np.argmax(features @ debt.astype(np.float32)))
        picked[row] = None
        debt += mean - features[row]
    if len(picked) < count:
        others = herd(features, len(features)).tolist()
        picked.update(dict.fromkeys(others))
    return np.array(list(picked)[:count], dtype=np.int64)
