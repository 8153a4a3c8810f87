"""Multi-modal retrieval: fused image-text pairs retrieve others of their class.

Each task is fused once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding import fuse
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.retrieval.plan import RetrievalPlan
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.hits import ClassSearch, find_hits
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.items import GATHER_ITEMS, FusedFeatures
from vlcpctl.evaluation.session import Session
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.metrics.average_precision import (
    DEFAULT_VARIANT,
    RankedHits,
    count_touched,
    mean_average_precisions,
)
from vlcpctl.metrics.recall import CUTOFFS

TOP = max(CUTOFFS)


@final
class MultiModalEvaluator(Evaluator):
    """Mean average precision in galleries of the tasks of a plan."""

    def __init__(self, plan: RetrievalPlan, compute: Compute) -> None:
        request = plan.request
        self.sources = [
            {name: EvalSplit(task, name, request.limit) for name in request.splits}
            for task in request.tasks
        ]
        self.queries, self.gallery = request.splits[0], request.splits[-1]
        self.gather = GATHER_ITEMS[request.duplicates]
        self.open_index = choose(compute.backend, compute.device)
        self.variant = request.map_variant or DEFAULT_VARIANT

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        queries = [self._part(session, number, self.queries) for number in row.tasks]
        gallery = queries
        if self.gallery != self.queries:
            gallery = [self._part(session, number, self.gallery) for number in row.tasks]
        with session.timed_search(row):
            found = multi_modal(self.gather(queries, gallery), self.open_index, self.variant)
        return dataclasses.asdict(found)

    def _part(self, session: Session, number: int, split: str) -> FusedFeatures:
        """The fused features of one split of a task, computed once for all galleries."""
        source = self.sources[number][split]
        return session.once((number, split), lambda: self._fuse(session, source))

    def _fuse(self, session: Session, source: EvalSplit) -> FusedFeatures:
        where = {"task": source.task.slug, "split": source.name}
        with session.timed("embed", **where, pairs=len(source.items.texts)):
            return fuse(session.fusion_encoder, source, session.checkpoint, session.compute)


@dataclass(frozen=True)
class MultiModalResult:
    """Mean average precisions in percent.

    `n_ties` queries would score differently if they won their ties; `n_alone` have no right answer
    in the gallery and score 0.
    """

    metrics: dict[str, float]
    n_queries: int
    n_gallery: int
    n_ties: int
    n_alone: int


def multi_modal(
    search: ClassSearch, open_index: OpenIndex, variant: str = DEFAULT_VARIANT
) -> MultiModalResult:
    """Search the gallery for every query, leaving the query itself out."""
    hits = find_hits(search, open_index(search.sides.gallery_GD), TOP)
    right_Q = search.right_counts()
    worst, best = (
        RankedHits(hit_QN, right_Q, search.itself_Q >= 0) for hit_QN in (hits.worst, hits.best)
    )
    return MultiModalResult(
        metrics=mean_average_precisions(worst, variant),
        n_queries=len(right_Q),
        n_gallery=len(search.class_G),
        n_ties=count_touched(worst, best, variant),
        n_alone=int(np.count_nonzero(right_Q == 0)),
    )
