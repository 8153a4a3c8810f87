"""Images that a model is both trained and evaluated on.

Shapes: T images of all training splits together, N images of one other split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vlcpctl.inspection.split_columns import (
    UNREADABLE,
    CheckedSplit,
    Finding,
    Hashes,
    id_hashes,
    listed,
    value_at,
)

_ADVICE = (
    "remove them from one of the two and split again ('split --holdout' keeps copies of an image "
    "together)"
)


def leaks(splits: Sequence[CheckedSplit], known: TrainingImages) -> Iterator[Finding]:
    """Yield a finding for each split of which images are also in any split for training.

    Images are compared by the sha256 in the index. Indexes that cannot be read are left out.
    """
    for split in splits:
        if not split.is_trained_on and known.splits:
            try:
                yield from _leaks_into(split, known)
            except UNREADABLE:
                continue


@dataclass(frozen=True)
class TrainingImages:
    """The images of those splits that are for training, and whose index can be read."""

    given: Sequence[CheckedSplit]

    @cached_property
    def _read(self) -> list[tuple[CheckedSplit, Hashes]]:
        return list(_readable([one for one in self.given if one.is_trained_on], "sha256"))

    @property
    def splits(self) -> list[CheckedSplit]:
        """The splits that the images are from."""
        return [split for split, _ in self._read]

    @cached_property
    def sorted(self) -> tuple[Hashes, NDArray[np.int64]]:
        """(T,) hashes in ascending order, and (T,) the place of each image before sorting."""
        hashes = np.concatenate([np.empty(0, np.uint64), *(found for _, found in self._read)])
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The place of the first image of each split."""
        return np.cumsum([0, *(len(found) for _, found in self._read)])[:-1]

    @cached_property
    def keys(self) -> Hashes:
        """(T,) the sorted hashes of the keys, which stand for an image with its captions."""
        return np.sort(np.concatenate([keys for _, keys in _readable(self.splits, "key")]))

    def owner(self, place: int) -> tuple[CheckedSplit, int]:
        """The split of the image at a place, and the image's row in it."""
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.splits[number], place - int(self.starts[number])


def _readable(splits: Sequence[CheckedSplit], column: str) -> Iterator[tuple[CheckedSplit, Hashes]]:
    for split in splits:
        try:
            yield split, id_hashes(split.index, column)
        except UNREADABLE:
            continue


def _leaks_into(split: CheckedSplit, known: TrainingImages) -> Iterator[Finding]:
    hashes = id_hashes(split.index, "sha256")
    row_N = np.flatnonzero(contains(known.sorted[0], hashes))
    if not len(row_N):
        return
    places = known.sorted[1][contains(np.unique(hashes[row_N]), known.sorted[0])]
    numbers = np.unique(np.searchsorted(known.starts, places, side="right") - 1)
    same = int(contains(known.keys, id_hashes(split.index, "key")[row_N]).sum())
    first = int(row_N[0])
    place = known.sorted[1][np.searchsorted(known.sorted[0], hashes[first])]
    owner, row = known.owner(int(place))
    key, other = value_at(split.index, "key", first), value_at(owner.index, "key", row)
    renamed = f" (key {other} there)" if key != other else ""
    example = f"key {key}"
    owners = listed(known.splits[number].task for number in numbers)
    text = (
        f"images in {split.name} that are also training images: {len(row_N)} of {len(hashes)}, "
        f"{same} with the same captions, of {owners}; the first: {example}, in {owner.task}"
        f"{renamed}; {_ADVICE}"
    )
    yield Finding(split.task, "leak", text, len(row_N), example)


def contains(sorted_T: Hashes, hash_N: Hashes) -> NDArray[np.bool_]:
    """(N,) whether each hash is among the sorted ones.

    >>> contains(np.array([2, 5], np.uint64), np.array([5, 3, 9], np.uint64)).tolist()
    [True, False, False]
    """
    if not len(sorted_T):
        return np.zeros(len(hash_N), dtype=np.bool_)
    at = np.minimum(np.searchsorted(sorted_T, hash_N), len(sorted_T) - 1)
    found: NDArray[np.bool_] = sorted_T[at] == hash_N
    return found
