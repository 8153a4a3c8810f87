"""A uniform sample of all items seen (like Vitter, 1985): those with the lowest hashes.

Keeping the lowest of the kept and the new items gives the same sample as one pass over all items,
in any order and in any number of parts.
"""

from __future__ import annotations

import random

import numpy as np

from vlcpctl.select.order import lowest


def fixed_count(order: np.ndarray, count: int) -> np.ndarray:
    """(N,) bool: the `count` items with the lowest hashes.

    >>> fixed_count(np.array([0.3, 0.2, 0.8, 0.5]), 2)
    array([ True,  True, False, False])
    """
    chosen = np.zeros(len(order), dtype=bool)
    chosen[lowest(order, count)] = True
    return chosen


def fixed_share(order: np.ndarray, share: float) -> np.ndarray:
    """(N,) bool: each item independently, with probability `share`.

    >>> fixed_share(np.array([0.3, 0.2, 0.8, 0.5]), 0.4)
    array([ True,  True, False, False])
    """
    return order < share


def algorithm_r(count: int, seen: int, fresh: int, seed: int) -> np.ndarray:
    """(slots,) index of the fresh item that each slot holds afterwards; -1 if it keeps its item.

    Algorithm R with Python's own generator, as the CTP authors run it: item number n, from 0, takes
    an empty slot or draws one of n + 1. The draws for the `seen` earlier items are repeated, so
    that one pass and several passes give the same sample.

    >>> algorithm_r(3, 0, 3, 42), algorithm_r(3, 3, 5, 42)
    (array([0, 1, 2]), array([ 1, -1,  3]))
    """
    # Must draw exactly what random.seed and random.randint draw in the authors' code.
    draw = random.Random(seed)
    for number in range(count, seen):
        draw.randint(0, number)
    slots = np.full(min(count, seen + fresh), -1, dtype=np.int64)
    for place in range(fresh):
        number = seen + place
        slot = number if number < count else draw.randint(0, number)
        if slot < count:
            slots[slot] = place
    return slots
