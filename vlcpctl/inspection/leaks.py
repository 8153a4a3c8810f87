"""Images that a model is both trained and evaluated on: exact copies, and those that look alike.

Shapes: T images of all training splits together, N images of one other split.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.console import progress
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.inspection.findings import CheckedSplit, Finding, Ids, listed

_ADVICE = (
    "remove them from one of the two and split again ('split --holdout' keeps copies of an image "
    "together)"
)


class TrainingImages:
    """The images of those splits that are for training, and the others."""

    def __init__(self, splits: Sequence[CheckedSplit]) -> None:
        self.splits = [one for one in splits if one.is_trained_on]
        self.others = [one for one in splits if not one.is_trained_on and self.splits]
        none = np.empty(0, np.uint64)
        images_T = np.concatenate([none, *(one.images for one in self.splits)])
        self.keys = np.sort(np.concatenate([none, *(one.keys for one in self.splits)]))
        self._order = np.argsort(images_T, kind="stable")
        self.images = images_T[self._order]  # sorted
        self._starts = np.cumsum([0, *(len(one.images) for one in self.splits)])

    def place(self, number: int) -> tuple[CheckedSplit, str]:
        """The split of the image with a number, as the splits are read, and its key."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self.splits[at], self.splits[at].split.key(number - int(self._starts[at]))

    def first_copy(self, image: np.uint64) -> int:
        """The number of the first copy of an image."""
        return int(self._order[np.searchsorted(self.images, image)])

    def tasks_with(self, images_N: Ids) -> list[Path]:
        """The tasks that have copies of some images."""
        wanted = np.unique(images_N)
        return [one.task for one in self.splits if contains(wanted, one.images).any()]


def leaks(known: TrainingImages) -> Iterator[Finding]:
    """Yield a finding for each split of which images are also in any split for training."""
    for one in known.others:
        rows = np.flatnonzero(contains(known.images, one.images))
        if not len(rows):
            continue
        same = int(contains(known.keys, one.keys).sum())
        key = one.split.key(int(rows[0]))
        owner, other = known.place(known.first_copy(one.images[rows[0]]))
        renamed = f" (key {other} there)" if key != other else ""
        text = (
            f"images in {one.split.name} that are also training images: {len(rows)} of "
            f"{len(one.images)}, {same} with the same captions, of "
            f"{listed(known.tasks_with(one.images[rows]))}; the first: key {key}, in {owner.task}"
            f"{renamed}; {_ADVICE}"
        )
        yield Finding(one.task, "leak", text, len(rows), f"key {key}")


def contains(sorted_T: Ids, id_N: Ids) -> NDArray[np.bool_]:
    """(N,) whether each id is among the sorted ones.

    >>> contains(np.array([2, 5], np.uint64), np.array([5, 3, 9], np.uint64)).tolist()
    [True, False, False]
    """
    if not len(sorted_T):
        return np.zeros(len(id_N), dtype=np.bool_)
    at = np.minimum(np.searchsorted(sorted_T, id_N), len(sorted_T) - 1)
    found: NDArray[np.bool_] = sorted_T[at] == id_N
    return found


def require_image_hashes() -> None:
    """Raise UsageError if the library that computes perceptual hashes is not installed."""
    if importlib.util.find_spec("imagehash") is None:
        raise UsageError(
            "--near-duplicates needs a package that is not installed: pip install imagehash, or "
            "leave the option out"
        )


def near_duplicates(known: TrainingImages, bits: int) -> Iterator[Finding]:
    """Yield a finding for each split with images that look like training images.

    They do if their 64-bit perceptual hashes differ in at most `bits` bits. Exact copies, which
    `leaks` finds, are left out, and so are images that cannot be read.
    """
    if not known.others:
        return
    looks, first = [], 0
    for one in known.splits:
        rows, hashes = _looks(one)
        looks.append((rows + first, hashes))
        first += len(one.images)
    number_T, hash_T = map(np.concatenate, zip(*looks, strict=True))
    for one in known.others:
        rows, hashes = _looks(one)
        distance_N, near_N = _nearest(hash_T, hashes)
        alike = (distance_N <= bits) & ~contains(known.images, one.images[rows])
        if alike.any():
            places = [known.place(number) for number in number_T[near_N[alike]].tolist()]
            owners = listed(sorted({owner.task for owner, _ in places}))
            key, (owner, other) = one.split.key(int(rows[alike][0])), places[0]
            text = (
                f"images in {one.split.name} that look like training images: {len(places)} of "
                f"{len(rows)} (at most {bits} of 64 bits differ), of {owners}; the first: key "
                f"{key}, like key {other} of {owner.task}; look at some, and remove true copies "
                "from the training data"
            )
            yield Finding(one.task, "near duplicate", text, len(places), f"key {key}")


def _nearest(hash_T: Ids, hash_N: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) in how many bits the nearest of the T hashes differs, and (N,) its place.

    All are compared, which takes a fraction of the time that decoding the images does.
    """
    distance_N, near_N = np.full(len(hash_N), 65), np.zeros(len(hash_N), np.int64)
    for row, look in enumerate(hash_N if len(hash_T) else ()):
        distance_T = np.bitwise_count(hash_T ^ look)
        near_N[row] = distance_T.argmin()
        distance_N[row] = distance_T[near_N[row]]
    return distance_N, near_N


def _looks(one: CheckedSplit) -> tuple[NDArray[np.int64], Ids]:
    """(N,) the rows of the readable images of a split, and (N,) their perceptual hashes.

    The 64 bits of a pHash are the signs of the low frequencies of its cosine transform.
    """
    import imagehash

    from vlcpctl.data.images.transforms import decode_image

    rows, hashes = [], b""
    with progress(f"near duplicates: {one}", len(one.images), "images") as bar:
        for row in range(len(one.images)):
            bar.advance()
            with suppress(BadInput):
                image = decode_image(one.split.image(row))
                hashes += np.packbits(imagehash.phash(image).hash).tobytes()
                rows.append(row)
    return np.array(rows, np.int64), np.frombuffer(hashes, np.uint64)
