"""Herding (Welling, 2009): items picked so that the mean of the first few is near that of all."""

from __future__ import annotations

import numpy as np

_TURNS_PER_ROW = 100  # of `herd_again`, before it gives up


def herd(features: np.ndarray, count: int) -> np.ndarray:
    """The rows picked, best first: any prefix of the answer is the answer for a smaller count.

    `features` are L2-normalised. A row is picked once,
    so that equal rows cannot keep it going for ever.

    >>> herd(np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]), 2)
    array([2, 1])
    """
    features = np.asarray(features, dtype=np.float64)
    count = min(count, len(features))
    mean = features.mean(axis=0)
    debt = mean.copy()  # what the sum of the picked rows still lacks
    is_free = np.ones(len(features), dtype=bool)
    picked = np.empty(count, dtype=np.int64)
    for turn in range(count):
        row = int(np.argmax(np.where(is_free, features @ debt, -np.inf)))
        picked[turn] = row
        is_free[row] = False
        debt += mean - features[row]
    return picked


def herd_again(features: np.ndarray, count: int) -> np.ndarray:
    """The rows picked, best first, where a row may come up again and weigh once more.

    That is the CTP authors' loop: a row that comes up again takes no second place, but its feature
    is counted again, so that other rows follow than `herd` picks. Rows that the loop cannot reach,
    such as equal ones, are picked as `herd` would after so many turns (ours; theirs never ends).

    >>> herd_again(np.array([[1.0, 0.0], [1.0, 0.0]]), 2)
    array([0, 1])
    """
    features = np.asarray(features, dtype=np.float64)
    count = min(count, len(features))
    mean = features.mean(axis=0)
    debt = mean.copy()
    picked: dict[int, None] = {}  # in order
    for _ in range(_TURNS_PER_ROW * count):
        if len(picked) == count:
            break
        row = int(np.argmax(features @ debt))
        picked[row] = None
        debt += mean - features[row]
    if len(picked) < count:
        others = herd(features, len(features)).tolist()
        picked.update(dict.fromkeys(others))
    return np.array(list(picked)[:count], dtype=np.int64)
