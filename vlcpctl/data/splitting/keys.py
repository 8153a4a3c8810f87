"""The keys that a pass has seen, sorted in NumPy, so that 10**8 of them take 2 GB."""

from __future__ import annotations

from itertools import compress

import numpy as np

from vlcpctl.data.tasks.keys import SORTABLE, Sorted, rows_in

_LATEST = 1 << 18  # keys in a Python set; 25 MB
_PARTS = 16  # by the first four bits of a key, so that merging needs little more memory
_STARTS = [bytes([part << 4]) for part in range(_PARTS)]


class SeenKeys:
    """A growing set of keys of 16 bytes: the latest in a set, the others in sorted runs.

    Two runs of about the same size become one, so that there are few.
    """

    def __init__(self, latest: int = _LATEST) -> None:
        self._most, self._latest = latest, set[bytes]()
        self._runs: list[list[Sorted]] = [[] for _ in range(_PARTS)]  # the largest first

    def add_new(self, keys: list[bytes]) -> set[bytes]:
        """Add keys; returns those that were not in the set before."""
        fresh = set(keys) - self._latest
        if fresh and any(self._runs):
            ordered = sorted(fresh)
            new_B = [self._is_new(part, some) for part, some in enumerate(_parts(ordered))]
            fresh = set(compress(ordered, np.concatenate(new_B)))
        self._latest |= fresh
        if len(self._latest) > self._most:
            latest, self._latest = sorted(self._latest), set()
            for runs, new in zip(self._runs, _parts(latest), strict=True):
                runs.append(new)
                while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
                    runs[-2:] = [np.concatenate(runs[-2:])]
                    runs[-1].sort(kind="stable")  # which merges what is sorted in linear time
        return fresh

    def _is_new(self, part: int, keys_B: Sorted) -> np.ndarray:
        is_new = np.ones(len(keys_B), dtype=bool)
        for run in self._runs[part] if len(keys_B) else ():
            is_new &= rows_in(run, keys_B) < 0
        return is_new


def _parts(ordered: list[bytes]) -> list[Sorted]:
    """The keys by their first bits, each part a copy of its own."""
    keys = np.array(ordered, SORTABLE)
    edges = np.searchsorted(keys, np.array(_STARTS, SORTABLE))[1:]
    return [part.copy() for part in np.split(keys, edges)]
