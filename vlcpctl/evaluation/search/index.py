"""Exact inner-product search: the interface of a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]


class Index(Protocol):
    """A gallery (G, D) that can be searched."""

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """(Q, k) largest inner products of each query in descending order, and their gallery rows.

        A place for which nothing was found has row -1.
        """
        ...


OpenIndex = Callable[[Vectors], Index]
