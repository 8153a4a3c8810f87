"""Which keys a pass has seen: the latest in memory, the others on disk in sorted runs.

Two runs of about the same size become one, so that N keys are in at most log2(N / 250,000) runs,
and each key is written as often: nothing is read or written at random places, as in the B-tree of a
database.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_IN_MEMORY = 250_000  # keys; 25 MB
_AT_ONCE = 1_000_000  # keys of a run that are merged in memory
_FIRST, _REST = np.dtype("u8"), np.dtype("S16")
_WIDTH = _FIRST.itemsize + _REST.itemsize  # 16 bytes of a digest, and the name of a split


class _Run(NamedTuple):
    """N keys in the order of their first 8 bytes, as numbers, and the rest of each.

    To compare texts would take ten times as long, and digests hardly ever begin alike.
    """

    first: NDArray[np.uint64]
    rest: NDArray[np.bytes_]

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> _Run:
        raw = b"".join(key.ljust(_WIDTH, b"\0") for key in keys)
        both = np.frombuffer(raw, np.dtype([("first", _FIRST), ("rest", _REST)]))
        return cls(both["first"], both["rest"])

    def ordered(self) -> _Run:
        order = np.argsort(self.first)
        return _Run(self.first[order], self.rest[order])

    def part(self, start: int, stop: int) -> _Run:
        return _Run(self.first[start:stop], self.rest[start:stop])

    def contains(self, keys: _Run) -> NDArray[np.bool_]:
        """Which of the keys are in the run."""
        found = np.zeros(len(keys.first), bool)
        places = np.searchsorted(self.first, keys.first)
        left = np.flatnonzero(places < len(self.first))
        while len(left):  # once, and again for those whose first bytes another key has, too
            left = left[self.first[places[left]] == keys.first[left]]
            found[left] |= self.rest[places[left]] == keys.rest[left]
            places[left] += 1
            left = left[places[left] < len(self.first)]
        return found


class SeenKeys:
    """A set of keys, of at most 24 bytes each, in a directory of its own."""

    def __init__(self, directory: Path, most_in_memory: int = _IN_MEMORY) -> None:
        self._directory, self._most_in_memory = directory, most_in_memory
        self._latest: set[bytes] = set()
        self._runs: list[_Run] = []  # the largest first

    def add_new(self, keys: list[bytes]) -> set[bytes]:
        """Add the keys; returns those that were not in the set before."""
        fresh = set(keys) - self._latest
        if self._runs and fresh:
            fresh = self._without_older([*fresh])
        self._latest |= fresh
        if len(self._latest) > self._most_in_memory:
            self._move_to_disk()
        return fresh

    def close(self) -> None:
        """Let go of the files: NFS keeps a removed one in its directory as long as it is mapped."""
        self._runs.clear()

    def _without_older(self, keys: list[bytes]) -> set[bytes]:
        wanted = _Run.of(keys)
        order = np.argsort(wanted.first)  # so that a run is read from its start to its end
        is_old = np.zeros(len(keys), bool)
        for run in self._runs:
            is_old[order] |= run.contains(_Run(wanted.first[order], wanted.rest[order]))
        return {key for key, is_one in zip(keys, is_old.tolist(), strict=True) if not is_one}

    def _move_to_disk(self) -> None:
        run = self._stored([_Run.of(self._latest).ordered()])
        self._latest = set()
        while self._runs and len(self._runs[-1].first) < 2 * len(run.first):
            run = self._stored(_merged(self._runs.pop(), run))
        self._runs.append(run)

    def _stored(self, parts: Iterable[_Run]) -> _Run:
        """The keys of the parts, one after another, in files that are read where they are used."""
        first, rest = (self._directory / name for name in _Run._fields)
        with first.open("wb") as firsts, rest.open("wb") as rests:
            for part in parts:
                firsts.write(part.first.data)
                rests.write(part.rest.data)
        run = _Run(np.memmap(first, _FIRST, "r"), np.memmap(rest, _REST, "r"))
        for path in (first, rest):
            path.unlink()  # the maps keep them
        return run


def _merged(one: _Run, other: _Run) -> Iterator[_Run]:
    """The keys of two runs in order, in parts; no key is in both."""
    done, count = 0, len(one.first)
    for start in range(0, count, _AT_ONCE):
        part = one.part(start, start + _AT_ONCE)
        is_last = start + _AT_ONCE >= count
        end = len(other.first) if is_last else int(np.searchsorted(other.first, part.first[-1]))
        end = max(end, done)
        more = other.part(done, end)
        first = np.concatenate([part.first, more.first])
        yield _Run(first, np.concatenate([part.rest, more.rest])).ordered()
        done = end


@contextmanager
def seen_keys(directory: Path) -> Iterator[SeenKeys]:
    """An empty set of keys, whose directory exists during the block."""
    directory.mkdir()
    seen = SeenKeys(directory)
    try:
        yield seen
    finally:
        seen.close()
        shutil.rmtree(directory)
