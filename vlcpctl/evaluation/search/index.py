"""Exact inner products of unit vectors: the interface of a search, and when scores are tied.

Backends compute scores in float32. Those too near an edge of the tie band to be trusted are
computed again in float64, so that all backends give the same ranks.
Galleries are made of embeddings of several tasks or shards, which are read in place: in memory they
would be there twice, and of mapped files only the pages in use are.
Shapes: Q queries, G gallery rows, N pairs of both, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

BAND = 1e-5  # scores that differ by less are tied
ERROR = 4e-6  # bound on the float32 error of inner products of unit vectors; 1.1e-6 was seen
_BLOCK_VALUES = 1 << 22  # of a block of vectors that has to be copied: 16 MB
_TILE_ROWS = 256  # pairs at once: their vectors in double precision stay in the cache

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All rows in memory, for functions of NumPy."""
        return np.array(self[:], dtype=dtype, copy=copy)

    def blocks(self) -> Iterator[tuple[int, Vectors]]:
        """The rows in blocks (n, D), with the row where each starts.

        Large arrays are blocks as they are. Small ones are copied together: one search of each of
        256 arrays of 40 rows took 3.6 times as long.
        """
        most = max(1, _BLOCK_VALUES // max(1, self.shape[1]))
        waiting = 0  # the first row that is in no block yet
        for (array, rows), start, end in zip(self._parts, self._starts, self._ends, strict=True):
            if rows is None and end - start >= most:
                yield from self._copied_blocks(waiting, start, most)
                if isinstance(array, Gathered):
                    yield from ((start + first, block) for first, block in array.blocks())
                else:
                    yield start, array
                waiting = end
        yield from self._copied_blocks(waiting, len(self), most)

    def _copied_blocks(self, first: int, end: int, most: int) -> Iterator[tuple[int, Vectors]]:
        for start in range(first, end, most):
            yield start, self[start : min(start + most, end)]

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


class Index(Protocol):
    """A gallery (G, D) that can be searched."""

    def search(self, queries_QD: Vectors, k: int) -> tuple[Vectors, Ids]:
        """(Q, k) largest inner products of each query in descending order, and their gallery rows.

        A place for which nothing was found has row -1.
        """
        ...


OpenIndex = Callable[[AnyVectors], Index]


@dataclass(frozen=True)
class QueryAndGallery:
    """Query embeddings and the gallery embeddings they are searched in, at unit length."""

    query_QD: AnyVectors
    gallery_GD: AnyVectors


def exact_scores(sides: QueryAndGallery, query_rows: Ids, gallery_rows: Ids) -> Scores:
    """(N,) float64 inner products of N pairs of rows, the same with every search backend."""
    scores = np.empty(len(query_rows))
    for start in range(0, len(scores), _TILE_ROWS):
        tile = slice(start, start + _TILE_ROWS)
        queries = sides.query_QD[query_rows[tile]].astype(np.float64)
        gallery = sides.gallery_GD[gallery_rows[tile]].astype(np.float64)
        scores[tile] = np.einsum("nd,nd->n", queries, gallery)
    return scores
