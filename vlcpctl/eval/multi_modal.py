"""Multi-modal retrieval: fused image-text pairs retrieve others of their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vlcpctl.eval.hits import Classed, find_hits
from vlcpctl.eval.search import OpenIndex
from vlcpctl.metrics.average_precision import (
    DEFAULT_VARIANT,
    Ranked,
    count_touched,
    mean_average_precisions,
)
from vlcpctl.metrics.recall import CUTOFFS

TOP = max(CUTOFFS)


@dataclass(frozen=True)
class Result:
    """Mean average precisions in percent.

    `n_ties` queries would score differently if they won their ties; `n_alone` have no right answer
    in the gallery and score 0.
    """

    metrics: dict[str, float]
    n_queries: int
    n_gallery: int
    n_ties: int
    n_alone: int


def multi_modal(classed: Classed, open_index: OpenIndex, variant: str = DEFAULT_VARIANT) -> Result:
    """Search the gallery for every query, leaving the query itself out."""
    hits = find_hits(classed, open_index(classed.sides.gallery_GD), TOP)
    right_Q = classed.right_counts()
    worst, best = (
        Ranked(hit_QN, right_Q, classed.itself_Q >= 0) for hit_QN in (hits.worst, hits.best)
    )
    return Result(
        metrics=mean_average_precisions(worst, variant),
        n_queries=len(right_Q),
        n_gallery=len(classed.class_G),
        n_ties=count_touched(worst, best, variant),
        n_alone=int(np.count_nonzero(right_Q == 0)),
    )
