"""A uniform sample of everything seen (as Vitter, 1985): the items whose hash is lowest.

Keeping the lowest of what was kept and what is new gives what one pass over everything gives, in
whatever order and in however many parts it comes.
"""

from __future__ import annotations

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
