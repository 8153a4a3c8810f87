"""A uniform sample of everything seen (as Vitter, 1985): the items whose hash is lowest.

Keeping the lowest of what was kept and what is new gives what one pass over everything gives, in
whatever order and in however many parts it comes.
"""

from __future__ import annotations

import random

import numpy as np

from vlcpctl.select.order import lowest


def fixed_count(order: np.ndarray, count: int) -> np.ndarray:
    """(N,) bool: the `count` items of lowest hash.

    >>> fixed_count(np.array([0.3, 0.2, 0.8, 0.5]), 2)
    array([ True,  True, False, False])
    """
    chosen = np.zeros(len(order), dtype=bool)
    chosen[lowest(order, count)] = True
    return chosen


def fixed_share(order: np.ndarray, share: float) -> np.ndarray:
    """(N,) bool: each item on its own merits, with probability `share`.

    >>> fixed_share(np.array([0.3, 0.2, 0.8, 0.5]), 0.4)
    array([ True,  True, False, False])
    """
    return order < share


def algorithm_r(count: int, seen: int, fresh: int, seed: int) -> np.ndarray:
    """(slots,) which of the fresh items each slot holds after they came by; -1: what it held.

    Algorithm R with Python's own generator, as the CTP authors run it: item number n, from 0, takes
    an empty slot or draws one of n + 1. The draws of the `seen` items before are made again, so
    that one pass and several give the same.

    >>> algorithm_r(3, 0, 3, 42), algorithm_r(3, 3, 5, 42)
    (array([0, 1, 2]), array([ 1, -1,  3]))
    """
    # Not for secrets: the point is to draw what random.seed and random.randint draw.
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
