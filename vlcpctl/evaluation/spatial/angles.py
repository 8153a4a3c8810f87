"""Spatial disorder: how angles between embeddings change between checkpoints (Mod-X).

Shapes: I distinct images, T distinct texts, P pairs, Q queries, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vlcpctl.evaluation.search.count import ranks
from vlcpctl.evaluation.search.galleries import UNITE, Captioned, Embeddings, Search, gather
from vlcpctl.evaluation.search.vectors import Ids, exact_scores
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


def spatial(
    samples: Captioned, before: Embeddings, after: Embeddings, device: str
) -> dict[str, Any]:
    """Measure how angles changed from an earlier model to a later one: the fields of a row.

    `metrics` are means in degrees and shares in percent (None without angles), `degrees` counts of
    angles by degree. Identical content is one sample. A pair counts in `imav_i2t` if the earlier
    model ranks a text of the image first, and in `imav_t2i` if it ranks an image of the text first;
    of several right answers, the nearest makes the pair.
    """
    images = before.image_ID[:], after.image_ID[:]
    texts = before.text_TD[:], after.text_TD[:]
    found = {
        "sam_image": self_angle_changes(*images),
        "sam_text": self_angle_changes(*texts),
        "ram_image": tally(rotations(*images)),
        "ram_text": tally(rotations(*texts)),
    }
    ways = gather([samples], UNITE).searches(before, before)  # a gallery of one part keeps its rows
    for way, search in ways.items():
        image_P, text_P = first_pairs(search, device).T[:: 1 if way == "i2t" else -1]
        then, now = ((one.image_ID[image_P], one.text_TD[text_P]) for one in (before, after))
        found[f"imav_{way}"] = tally(pair_changes(then, now))
    return {
        "metrics": _metrics(found),
        "degrees": {name: _trimmed(angles) for name, angles in found.items()},
        "n_images": len(before.image_ID),
        "n_texts": len(before.text_TD),
    }


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


def first_pairs(search: Search, device: str) -> Ids:
    """(P, 2) rows of queries with a right answer at rank 1, and of the best of their right answers.

    A tie is never a hit.
    """
    worst, _ = ranks(search, device, top=1)
    owner_A, right_A = search.right_A2.T
    score_A = exact_scores(search.query_QD, search.gallery_GD, owner_A, right_A)
    order = np.lexsort((score_A, owner_A))
    ends_Q = np.searchsorted(owner_A, np.arange(len(search)), side="right")
    best_Q = right_A[order][ends_Q - 1]
    (first,) = np.nonzero(worst[0] == 0)
    return np.stack([first, best_Q[first]], 1)


def _trimmed(angles: Angles) -> list[int]:
    """The counts without the zeros at the end."""
    last = np.flatnonzero(angles.counts)
    return [int(count) for count in angles.counts[: last[-1] + 1 if len(last) else 0]]
