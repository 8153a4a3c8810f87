"""The images of a probe: a split embedded by a checkpoint, and how a probe classifies it.

Shapes: N images, C classes, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.classification.labelled_sets import USUAL, LabelledSet, Way
from vlcpctl.evaluation.classification.linear_probe import (
    LabelledFeatures,
    Probe,
    probe_ranks,
)
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.evaluation.session import Session
from vlcpctl.metrics.accuracy import accuracies, tally
from vlcpctl.metrics.recall import count_touched


@dataclass(frozen=True)
class Images:
    """A split embedded by a checkpoint: N features, their classes and keys, and images left out.

    The keys identify images for the held-out draw.
    """

    feature_ND: Vectors
    label_N: Ids
    keys: list[str]
    skipped: int


def images_of(
    session: Session, opened: LabelledSet, tolerance: Tolerance, way: Way = USUAL
) -> Images:
    """A split embedded by the checkpoint of a session.

    Raises Diverged if embeddings are not finite, and TooManySkipped and BadInput as `check_flaws`.
    """
    what = f"{session.checkpoint} on {opened.name} ({opened.split})"
    flaws, rows, features = list(opened.images.flaws), [], []
    for batch_rows, image_BD, bad in opened.embed(session, what, way):
        flaws += bad
        rows.append(batch_rows)
        features.append(image_BD)
    opened.check_flaws(flaws, tolerance)
    kept = np.concatenate(rows)
    keys = [opened.images.key(row) for row in kept.tolist()]
    return Images(np.concatenate(features), opened.images.labels[kept], keys, len(flaws))


@dataclass(frozen=True)
class Judged:
    """What a probe achieves on a split."""

    metrics: dict[str, float]
    n_images: int
    n_unseen: int
    n_ties: int

    def fields(self) -> dict[str, Any]:
        """The fields by name."""
        return vars(self)


def labelled(images: Images, place_C: Ids, device: torch.device) -> LabelledFeatures:
    """The images on a device; `place_C` numbers the classes that have weights."""
    return LabelledFeatures(
        # Copied, so that the address of the features, and with it the last bits of products,
        # does not depend on where they come from.
        torch.from_numpy(images.feature_ND).to(device, copy=True),
        torch.from_numpy(place_C[images.label_N]).to(device),
        int(place_C.max()) + 1,
    )


def seen(images: Images, place_C: Ids) -> Images:
    """The images whose class has weights."""
    is_seen = place_C[images.label_N] >= 0
    return Images(images.feature_ND[is_seen], images.label_N[is_seen], [], 0)


def judged(probe: Probe, test: Images, place_C: Ids) -> Judged:
    """The accuracies of a probe; an image whose class has no weights (-1 in `place_C`) is wrong."""
    is_seen, count = place_C[test.label_N] >= 0, len(place_C)
    ranks = probe_ranks(probe, labelled(seen(test, place_C), place_C, probe.weight_CD.device))
    rank_N = np.full(len(test.label_N), count + 1)  # unseen classes rank last: never a hit
    rank_N[is_seen] = ranks.worst
    return Judged(
        metrics=accuracies(tally(rank_N, test.label_N, count)),
        n_images=len(test.label_N),
        n_unseen=int(np.count_nonzero(~is_seen)),
        n_ties=count_touched(ranks.worst, ranks.best),
    )
