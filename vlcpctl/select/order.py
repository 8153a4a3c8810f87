"""A random order of samples: a hash of seed and key, so that it is stateless."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vlcpctl.files.ids import unit_hash


def hash_order(seed: int, keys: Iterable[str]) -> np.ndarray:
    """(N,) numbers in [0, 1), uniform over the keys; each depends only on the seed and its key.

    >>> hash_order(0, ["a", "b"]).tolist() == hash_order(0, ["b", "a"]).tolist()[::-1]
    True
    """
    return np.fromiter((unit_hash("buffer", seed, key) for key in keys), dtype=np.float64)


def lowest(order: np.ndarray, count: int) -> np.ndarray:
    """(K,) int64 indices of the `count` lowest of (N,) numbers, lowest first; K = min(count, N).

    >>> lowest(np.array([0.5, 0.1, 0.9]), 2)
    array([1, 0])
    """
    return np.argsort(order, kind="stable")[:count]
