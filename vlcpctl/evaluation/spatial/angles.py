"""Spatial disorder: how angles between embeddings change between checkpoints (Mod-X).

Shapes: I distinct images, T distinct texts, P pairs, Q queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.gallery import Embeddings, merge_galleries
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.queries import Queries, both_ways
from vlcpctl.evaluation.search.ranks import search_ranks
from vlcpctl.metrics.angles import (
    CHANGE_BINS,
    ROTATION_BINS,
    Angles,
    pair_changes,
    rotations,
    self_angle_changes,
    shares,
    tally,
)

# The upper ends of the bins, in degrees, of each measure and side.
BINS = {
    **{f"sam_{side}": CHANGE_BINS for side in ("image", "text")},
    **{f"ram_{side}": ROTATION_BINS for side in ("image", "text")},
    **{f"imav_{way}": CHANGE_BINS for way in ("i2t", "t2i")},
}


@dataclass(frozen=True)
class SpatialResult:
    """Means in degrees, shares in percent (None without angles), and counts of angles by degree."""

    metrics: dict[str, float | None]
    degrees: dict[str, list[int]]
    n_images: int
    n_texts: int


def spatial(before: Embeddings, after: Embeddings, backend: Backend) -> SpatialResult:
    """Measure how angles changed from an earlier model to a later one of the same layout.

    Identical content is one sample. A pair counts in `imav_i2t` if the earlier model ranks a text
    of the image first, and in `imav_t2i` if it ranks an image of the text first; of several right
    answers, the nearest makes the pair.
    """
    images = before.image_ID[:], after.image_ID[:]
    texts = before.text_TD[:], after.text_TD[:]
    found = {
        "sam_image": self_angle_changes(*images),
        "sam_text": self_angle_changes(*texts),
        "ram_image": tally(rotations(*images)),
        "ram_text": tally(rotations(*texts)),
    }
    ways = both_ways(merge_galleries([before]))  # a gallery of one part keeps its rows
    pairs_of = {
        "i2t": first_pairs(ways["i2t"], backend),
        "t2i": first_pairs(ways["t2i"], backend)[:, ::-1],
    }
    for way, pairs_P2 in pairs_of.items():
        image_P, text_P = pairs_P2.T
        then, now = ((one.image_ID[image_P], one.text_TD[text_P]) for one in (before, after))
        found[f"imav_{way}"] = tally(pair_changes(then, now))
    return SpatialResult(
        metrics=_metrics(found),
        degrees={name: _trimmed(angles) for name, angles in found.items()},
        n_images=len(before.image_ID),
        n_texts=len(before.text_TD),
    )


def bin_names(measure: str) -> list[str]:
    """The metric keys of a measure's bins.

    >>> bin_names("sam_image")[-1]
    'sam_image_20_180'
    """
    ends = BINS[measure]
    return [f"{measure}_{low}_{high}" for low, high in zip((0, *ends), ends, strict=False)]


def _metrics(found: Mapping[str, Angles]) -> dict[str, float | None]:
    metrics: dict[str, float | None] = {}
    for measure, angles in found.items():
        names, ends = bin_names(measure), BINS[measure]
        metrics[f"{measure}_mean"] = angles.mean if angles.count else None
        values = shares(angles.counts, ends) if angles.count else [None] * len(ends)
        metrics |= dict(zip(names, values, strict=True))
    return metrics


def first_pairs(queries: Queries, backend: Backend) -> Ids:
    """(P, 2) rows of queries with a right answer at rank 1, and of the best of their right answers.

    A tie is never a hit.
    """
    is_first = search_ranks(queries, backend, top=1).ranks().worst == 1
    right = queries.right
    order = np.lexsort((queries.right_scores, right.owners))
    best = right.ids[order][right.starts[1:] - 1]  # of each query
    return np.stack([np.flatnonzero(is_first), best[is_first]], 1)


def _trimmed(angles: Angles) -> list[int]:
    """The counts without the zeros at the end."""
    last = np.flatnonzero(angles.counts)
    return [int(count) for count in angles.counts[: last[-1] + 1 if len(last) else 0]]
