"""Sorted keys of 16 bytes: those that a pass has seen, and those on lists of pairs to leave out.

To compare texts would take ten times as long: a key is two numbers, and as keys are hashes, two of
them hardly ever have the same first one. Shapes: N sorted keys, B keys to look for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vlcpctl.data.tasks.keys import KEY_BYTES, Keys

Numbers = NDArray[np.uint64]
_LATEST = 1 << 18  # keys in a Python set; 25 MB
_PARTS = 16  # by the first four bits of a key, so that merging needs little more memory


class SortedKeys:
    """N keys in order, in 16 bytes each; `place_N` is which of the given ones each is."""

    def __init__(self, first_N: Numbers, second_N: Numbers) -> None:
        self._first_N, self._second_N = first_N, second_N

    @classmethod
    def of(cls, keys: Keys) -> tuple[Self, NDArray[np.int64]]:
        """The keys in order, of equal ones the first given first; and that order, (N,)."""
        order = keys.order()
        first_N, second_N = keys.numbers()[:, order]
        return cls(first_N, second_N), order

    def __len__(self) -> int:
        return len(self._first_N)

    def rows(self, first_B: Numbers, second_B: Numbers) -> NDArray[np.int64]:
        """(B,) int64: the first row that has each key, given by its numbers; -1 if none has it."""
        found = np.full(len(first_B), -1, dtype=np.int64)
        at_B = np.searchsorted(self._first_N, first_B)
        end_B = np.searchsorted(self._first_N, first_B, side="right")
        while len(left := np.flatnonzero((at_B < end_B) & (found < 0))):
            is_it = self._second_N[at_B[left]] == second_B[left]
            found[left[is_it]] = at_B[left[is_it]]
            at_B[left] += 1
        return found

    def merged(self, other: SortedKeys) -> SortedKeys:
        """The keys of both."""
        first_N = np.concatenate([self._first_N, other._first_N])
        order = np.argsort(first_N)
        return SortedKeys(first_N[order], np.concatenate([self._second_N, other._second_N])[order])

    def part(self, start: int, end: int) -> SortedKeys:
        """A copy of some rows."""
        return SortedKeys(self._first_N[start:end].copy(), self._second_N[start:end].copy())


class SeenKeys:
    """A growing set of keys: the latest in a set, the others sorted, so that 10**8 take 2 GB.

    Two runs of sorted keys of about the same size become one, so that there are few.
    """

    def __init__(self, latest: int = _LATEST) -> None:
        self._most, self._latest = latest, set[bytes]()
        self._runs: list[list[SortedKeys]] = [[] for _ in range(_PARTS)]  # the largest first

    def add_new(self, keys: list[bytes]) -> set[bytes]:
        """Add keys of 16 bytes; returns those that were not in the set before."""
        fresh = set(keys) - self._latest
        if any(self._runs) and fresh:
            fresh = self._not_in_runs(fresh)
        self._latest |= fresh
        if len(self._latest) > self._most:
            self._sort_latest()
        return fresh

    def _not_in_runs(self, keys: set[bytes]) -> set[bytes]:
        ordered = sorted(keys)
        first_B, second_B = _keys(ordered).numbers()
        is_old = np.zeros(len(ordered), dtype=bool)
        for runs, (start, end) in zip(self._runs, pairwise(_edges(first_B)), strict=True):
            for run in runs if start < end else ():
                is_old[start:end] |= run.rows(first_B[start:end], second_B[start:end]) >= 0
        return {key for key, old in zip(ordered, is_old.tolist(), strict=True) if not old}

    def _sort_latest(self) -> None:
        keys = _keys(list(self._latest))
        latest, order = SortedKeys.of(keys)
        self._latest = set()
        for runs, (start, end) in zip(
            self._runs, pairwise(_edges(keys.numbers()[0][order])), strict=True
        ):
            run = latest.part(start, end)
            while runs and len(runs[-1]) < 2 * len(run):
                run = runs.pop().merged(run)
            runs.append(run)


def _keys(keys: list[bytes]) -> Keys:
    return Keys(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES))


def _edges(first_N: Numbers) -> list[int]:
    """Where each of the parts starts in sorted numbers, and where the last ends."""
    bits = 64 - (_PARTS - 1).bit_length()
    starts = (np.arange(_PARTS, dtype=np.uint64) << np.uint64(bits)).astype(np.uint64)
    return [*np.searchsorted(first_N, starts).tolist(), len(first_N)]
