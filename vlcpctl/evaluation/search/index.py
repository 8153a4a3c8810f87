"""Exact inner products of unit vectors: the interface of a search, and when scores are tied.

Backends compute scores in float32. Those too near an edge of the tie band to be trusted are
computed again in float64, so that all backends give the same ranks.
Shapes: Q queries, G gallery rows, N pairs of both, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

BAND = 1e-5  # scores that differ by less are tied
ERROR = 4e-6  # bound on the float32 error of inner products of unit vectors; 1.1e-6 was seen
_TILE_ROWS = 256  # pairs at once: their vectors in double precision stay in the cache

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Index(Protocol):
    """A gallery (G, D) that can be searched."""

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """(Q, k) largest inner products of each query in descending order, and their gallery rows.

        A place for which nothing was found has row -1.
        """
        ...


OpenIndex = Callable[[Vectors], Index]


@dataclass(frozen=True)
class QueryAndGallery:
    """Query embeddings and the gallery embeddings they are searched in, at unit length."""

    query_QD: Vectors
    gallery_GD: Vectors


def exact_scores(sides: QueryAndGallery, query_rows: Ids, gallery_rows: Ids) -> Scores:
    """(N,) float64 inner products of N pairs of rows, the same with every search backend."""
    scores = np.empty(len(query_rows))
    for start in range(0, len(scores), _TILE_ROWS):
        tile = slice(start, start + _TILE_ROWS)
        queries = sides.query_QD[query_rows[tile]].astype(np.float64)
        gallery = sides.gallery_GD[gallery_rows[tile]].astype(np.float64)
        scores[tile] = np.einsum("nd,nd->n", queries, gallery)
    return scores
