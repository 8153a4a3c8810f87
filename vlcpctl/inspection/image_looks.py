"""What only the images themselves show: near copies by perceptual hash.

Shapes: T images of all training splits together, N images of one other split, P pairs of them.
"""

from __future__ import annotations

import importlib.util
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcpctl.core.console import progress
from vlcpctl.core.errors import UsageError
from vlcpctl.data.images.header import BrokenImage, read_header
from vlcpctl.data.tasks.task import open_task
from vlcpctl.inspection.leaks import TrainingImages, contains
from vlcpctl.inspection.split_columns import (
    UNREADABLE,
    CheckedSplit,
    Finding,
    Hashes,
    id_hashes,
    listed,
    value_at,
)

_CANDIDATES_AT_ONCE = 1 << 22
# What Pillow's readers raise besides OSError.
_BROKEN = (*UNREADABLE, BrokenImage, SyntaxError, LookupError, struct.error, ArithmeticError)


def require_image_hashes() -> None:
    """Raise UsageError if the library that computes perceptual hashes is not installed."""
    if importlib.util.find_spec("imagehash") is None:
        raise UsageError(
            "--near-duplicates needs a package that is not installed: pip install imagehash, or "
            "leave the option out"
        )


def near_duplicates(
    splits: Sequence[CheckedSplit], known: TrainingImages, bits: int
) -> Iterator[Finding]:
    """Yield a finding for each split with images that look like training images.

    They do if their 64-bit perceptual hashes differ in at most `bits` bits. Exact copies, which
    `leaks` finds, are left out, and so are indexes that cannot be read.
    """
    others = [split for split in splits if not split.is_trained_on]
    if not others or not known.splits:
        return
    looks = [(split, *_looks(split)) for split in known.splits]
    look_T = np.concatenate([hashes for *_, hashes in looks])
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in looks)])[:-1]
    for split in others:
        row_N, hash_N = _looks(split)
        if not len(row_N):
            continue
        is_copy = contains(known.sorted[0], id_hashes(split.index, "sha256")[row_N])
        near_N = np.where(is_copy, -1, nearest_within(look_T, hash_N, bits))
        found = np.flatnonzero(near_N >= 0)
        if len(found):
            numbers = np.searchsorted(starts, near_N[found], side="right") - 1
            owner, rows, _ = looks[numbers[0]]
            other = value_at(owner.index, "key", int(rows[near_N[found[0]] - starts[numbers[0]]]))
            example = f"key {value_at(split.index, 'key', int(row_N[found[0]]))}"
            owners = listed(looks[number][0].task for number in np.unique(numbers))
            text = (
                f"images in {split.name} that look like training images: {len(found)} of "
                f"{len(row_N)} (at most {bits} of 64 bits differ), of {owners}; the first: "
                f"{example}, like key {other} of {owner.task}; look at some, and remove true "
                "copies from the training data"
            )
            yield Finding(split.task, "near duplicate", text, len(found), example)


def _looks(split: CheckedSplit) -> tuple[NDArray[np.int64], Hashes]:
    """(N,) the rows of the readable images of a split, and (N,) their perceptual hashes."""
    rows, hashes = [], []
    with suppress(*UNREADABLE):
        opened = open_task(split.task).split(split.name)
        with progress(f"near duplicates: {split}", len(opened), "images") as bar:
            for row in range(len(opened)):
                bar.advance()
                with suppress(*_BROKEN, Image.DecompressionBombError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    data = opened.image(row)
                    read_header(data)
                    hashes.append(perceptual_hash(data))
                    rows.append(row)
    return np.array(rows, np.int64), np.array(hashes, np.uint64)


def perceptual_hash(data: bytes) -> int:
    """The pHash of an encoded image: 64 signs of the low frequencies of its cosine transform.

    The image is decoded as for training. Raises BadInput if that fails.
    """
    import imagehash

    from vlcpctl.data.images.transforms import decode_image

    return int(str(imagehash.phash(decode_image(data))), 16)


def nearest_within(known_T: Hashes, hash_N: Hashes, bits: int) -> NDArray[np.int64]:
    """(N,) the place of a known hash that differs in at most `bits` bits, -1 where there is none.

    >>> nearest_within(np.array([7, 0], np.uint64), np.array([15, 2**40 - 1], np.uint64), 1)
    array([ 0, -1])
    """
    value_T, place_T = np.unique(known_T, return_index=True)
    value_N, inverse_N = np.unique(hash_N, return_inverse=True)
    best_N = np.full(len(value_N), bits + 1)
    found_N = np.full(len(value_N), -1)
    # Hashes that differ in `bits` bits agree in at least one of bits + 1 parts.
    edges = np.linspace(0, 64, bits + 2).astype(np.int64)
    for low, high in pairwise(edges):
        mask = np.uint64((1 << int(high - low)) - 1)
        part_T, part_N = ((value >> np.uint64(low)) & mask for value in (value_T, value_N))
        order = np.argsort(part_T, kind="stable")
        for pair_P, sorted_P in _candidates(part_T[order], part_N):
            distance_P = np.bitwise_count(value_T[order[sorted_P]] ^ value_N[pair_P])
            is_near = distance_P < best_N[pair_P]
            ours_P, near_P = pair_P[is_near], order[sorted_P[is_near]]
            distance_P = distance_P[is_near]
            # Best last: of several assignments to one place, the last one wins.
            best_P = np.lexsort((near_P, distance_P))[::-1]
            best_N[ours_P[best_P]] = distance_P[best_P]
            found_N[ours_P[best_P]] = place_T[near_P[best_P]]
    return found_N[inverse_N]


def _candidates(
    sorted_T: Hashes, part_N: Hashes
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of places (in `part_N`, in `sorted_T`) of equal parts, a bounded number at a time."""
    first_N = np.searchsorted(sorted_T, part_N)
    last_N = np.searchsorted(sorted_T, part_N, side="right")
    ends_N: NDArray[np.int64] = np.cumsum(last_N - first_N)
    total = int(ends_N[-1]) if len(ends_N) else 0
    for start in range(0, total, _CANDIDATES_AT_ONCE):
        number = np.arange(start, min(start + _CANDIDATES_AT_ONCE, total))
        ours = np.searchsorted(ends_N, number, side="right")
        yield ours, (last_N[ours] - (ends_N[ours] - number)).astype(np.int64)
