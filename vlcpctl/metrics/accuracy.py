"""Zero-shot accuracy in percent, from the rank of each image's class; counts add up over batches.

Shapes: N images, C classes, K cut-offs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

CUTOFFS = (1, 5)


@dataclass(frozen=True)
class Tally:
    """The number of images per class, and how many of them are right within each cut-off."""

    images_C: Counts
    hits_KC: Counts

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.images_C + other.images_C, self.hits_KC + other.hits_KC)


def tally(rank_N: Counts, label_N: Counts, classes: int) -> Tally:
    """Count images by label, given the ranks (from 1) of their true classes."""
    hits = [np.bincount(label_N[rank_N <= cutoff], minlength=classes) for cutoff in CUTOFFS]
    return Tally(np.bincount(label_N, minlength=classes), np.stack(hits))


def accuracies(found: Tally, candidates: int | None = None) -> dict[str, float]:
    """`acc1`, `acc5` and the mean per-class recall over the classes that have images, in percent.

    With fewer than five candidates there is no `acc5`: every image would be a hit. These are the
    classes unless their number is given.

    >>> accuracies(tally(np.array([1, 2, 1, 1]), np.array([0, 0, 0, 1]), 3))
    {'acc1': 75.0, 'mean_per_class_recall': 83.33}
    """
    images, most = int(found.images_C.sum()), candidates or len(found.images_C)
    metrics = {
        f"acc{cutoff}": 100 * int(hits.sum()) / images
        for cutoff, hits in zip(CUTOFFS, found.hits_KC, strict=True)
        if cutoff <= most
    }
    has_images = found.images_C > 0
    recall_C = found.hits_KC[0, has_images] / found.images_C[has_images]
    return {**metrics, "mean_per_class_recall": 100 * float(np.mean(recall_C))}


def mean_accuracies(several: list[dict[str, float]]) -> dict[str, float]:
    """The mean over data sets of each metric that all of them have.

    >>> mean_accuracies([{"acc1": 20.0, "acc5": 50.0}, {"acc1": 40.0}])
    {'acc1': 30.0}
    """
    shared = [key for key in several[0] if all(key in one for one in several)]
    return {key: float(np.mean([one[key] for one in several])) for key in shared}
