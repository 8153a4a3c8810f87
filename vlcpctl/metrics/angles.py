"""How much angles change between two models (Mod-X, sections 3.2 and B.2): counts by degree.

Shapes: N samples, P pairs, D dimensions. Vectors of any length; angles in degrees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.floating]
Degrees = NDArray[np.float64]
Counts = NDArray[np.int64]

WHOLE = 180
BLOCK = 512  # rows; of a block of pairs some 20 MB are alive at once

# Where the bins of the papers' tables end (Mod-X, Figures 2 and 10, Tables 1 and 5); the lowest
# starts at 0. A bin holds its upper end.
CHANGE_BINS = (5, 10, 15, 20, WHOLE)
ROTATION_BINS = (15, 20, 25, 30, WHOLE)


@dataclass(frozen=True)
class Angles:
    """How many angles are in [0, 1], (1, 2], ... (179, 180] degrees, and their sum."""

    counts: Counts  # (180,)
    total: float

    def __add__(self, other: Angles) -> Angles:
        return Angles(self.counts + other.counts, self.total + other.total)

    @property
    def count(self) -> int:
        """The number of angles."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean angle in degrees; there must be at least one angle."""
        return self.total / self.count


def tally(degrees: Degrees) -> Angles:
    """Count angles between 0 and 180 degrees.

    >>> tally(np.array([0.0, 0.5, 1.0, 1.5])).counts[:3]
    array([3, 1, 0])
    """
    place = np.clip(np.ceil(degrees).astype(np.int64) - 1, 0, WHOLE - 1).ravel()
    return Angles(np.bincount(place, minlength=WHOLE), float(degrees.sum()))


def shares(counts: Counts, ends: tuple[int, ...]) -> list[float]:
    """Percent of the angles in each bin, given where the bins end.

    >>> shares(tally(np.array([1.0, 5.0, 5.1, 90.0])).counts, CHANGE_BINS)
    [50.0, 25.0, 0.0, 0.0, 25.0]
    """
    below = np.concatenate([[0], np.cumsum(counts)])[[0, *ends]]
    return [float(share) for share in 100 * np.diff(below) / counts.sum()]


def rotations(before_ND: Vectors, after_ND: Vectors) -> Degrees:
    """(N,) RAM: the angle between a sample's vectors under two models (section 3.2.1).

    >>> rotations(np.array([[1.0, 0.0]]), np.array([[0.0, 3.0]]))
    array([90.])
    """
    before, after = _unit(before_ND), _unit(after_ND)
    # An arc cosine would lose half of the digits of small angles.
    across = np.linalg.norm(before - after, axis=1)
    along = np.linalg.norm(before + after, axis=1)
    angles: Degrees = np.degrees(2 * np.arctan2(across, along))
    return angles


def self_angle_changes(before_ND: Vectors, after_ND: Vectors, block: int = BLOCK) -> Angles:
    """SAM: how much the angle between two samples changed, of every two (section 3.2.1).

    Pairs are made block by block, so that N x N angles never exist at once.

    >>> then, now = np.eye(3), np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 1]])
    >>> changed = self_angle_changes(then, now)  # by 0, 0 and 45 degrees
    >>> changed.count, changed.mean
    (3, 15.0)
    """
    before, after = _unit(before_ND), _unit(after_ND)
    found = tally(np.empty(0))
    for first in range(0, len(before), block):
        rows = slice(first, first + block)
        for second in range(first, len(before), block):
            columns = slice(second, second + block)
            then = _between(before[rows], before[columns])
            now = _between(after[rows], after[columns])
            changes = np.abs(then - now)
            if first == second:  # each pair once, no sample with itself
                changes = changes[np.triu_indices(len(changes), 1)]
            found += tally(changes)
    return found


def pair_changes(before: tuple[Vectors, Vectors], after: tuple[Vectors, Vectors]) -> Degrees:
    """(P,) ImAV: how much the angle between image and text of a pair changed (section B.2).

    Both models give images and texts (P, D) each.

    >>> image, text = np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])
    >>> pair_changes((image, text), (image, np.array([[0.0, 1.0]])))
    array([45.])
    """
    changes: Degrees = np.abs(rotations(*before) - rotations(*after))
    return changes


def _between(one_ND: Degrees, other_MD: Degrees) -> Degrees:
    angles: Degrees = np.degrees(np.arccos(np.clip(one_ND @ other_MD.T, -1.0, 1.0)))
    return angles


def _unit(vectors_ND: Vectors) -> Degrees:
    wide = vectors_ND.astype(np.float64)
    unit: Degrees = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return unit
