"""Embeddings where they lie: some rows of several arrays, and exact inner products of rows.

Galleries are made of embeddings of several tasks or shards, which are read in place: in memory they
would be there twice, and of mapped files only the pages in use are.
Shapes: N pairs of rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

_PAIRS = 64  # pairs at once: their vectors in double precision stay in the cache

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


@final
class Gathered:
    """(N, D) float32: some rows of several arrays, of one after the other, gathered when read.

    There is one array at least; rows (n,) of None are all of it.
    """

    def __init__(self, parts: Sequence[tuple[AnyVectors, Ids | None]]) -> None:
        # What takes all rows in order needs no list of them, and is read in place.
        self._parts = [
            (array, None if rows is None or _are_all(rows, len(array)) else rows)
            for array, rows in parts
        ]
        counts = [len(array) if rows is None else len(rows) for array, rows in self._parts]
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self.shape: tuple[int, ...] = (sum(counts), self._parts[0][0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Ids) -> Vectors:
        """(n, D) these rows; a slice (without a step) of one array is not copied."""
        if isinstance(rows, slice):
            first, end, _ = rows.indices(len(self))
            pieces = list(self._pieces(first, end))
            none: Vectors = np.empty((0, self.shape[1]), np.float32)
            return pieces[0] if len(pieces) == 1 else np.concatenate([none, *pieces])
        rows = np.asarray(rows)
        part_n = np.searchsorted(self._ends, rows, side="right")
        found = np.empty((len(rows), self.shape[1]), np.float32)
        for part in np.unique(part_n).tolist():
            (array, own), is_here = self._parts[part], part_n == part
            places = rows[is_here] - self._starts[part]
            found[is_here] = array[places if own is None else own[places]]
        return found

    def _pieces(self, first: int, end: int) -> Iterator[Vectors]:
        """The rows from `first` to before `end`, array by array."""
        for (array, rows), start, stop in zip(self._parts, self._starts, self._ends, strict=True):
            low, high = max(first, start), min(end, stop)
            if low < high:
                own = slice(low - start, high - start)
                yield array[own] if rows is None else array[rows[own]]


AnyVectors: TypeAlias = Vectors | Gathered


def _are_all(rows: Ids, count: int) -> bool:
    return len(rows) == count and bool(np.all(rows == np.arange(count)))


def exact_scores(
    query_QD: AnyVectors, gallery_GD: AnyVectors, query_N: Ids, gallery_N: Ids
) -> Scores:
    """(N,) float64 inner products of N pairs of rows, the same on every device."""
    scores = np.empty(len(query_N))
    for start in range(0, len(scores), _PAIRS):
        some = slice(start, start + _PAIRS)
        queries = query_QD[query_N[some]].astype(np.float64)
        gallery = gallery_GD[gallery_N[some]].astype(np.float64)
        scores[some] = np.einsum("nd,nd->n", queries, gallery)
    return scores
