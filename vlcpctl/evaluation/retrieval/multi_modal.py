"""Multi-modal retrieval: fused image-text pairs retrieve others of their class.

Each task is fused once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding import fuse
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.retrieval.plan import RetrievalPlan
from vlcpctl.evaluation.search.backends import Backend, choose
from vlcpctl.evaluation.search.hits import Hits, HitSearch
from vlcpctl.evaluation.search.items import (
    GATHER_GROWING_ITEMS,
    GATHER_ITEMS,
    ClassSearch,
    FusedFeatures,
    GrowingItems,
)
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
        self.gather_growing = GATHER_GROWING_ITEMS[request.duplicates]
        self.backend = choose(compute.backend, compute.device)
        self.variant = request.map_variant or DEFAULT_VARIANT

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        is_merged = row.fields["gallery"] == "merged"
        found = self._merged(session, row) if is_merged else self._own(session, row)
        return dataclasses.asdict(found)

    def _own(self, session: Session, row: PlannedRow) -> MultiModalResult:
        parts = self._parts(session, row.tasks)
        with session.timed_search(row):
            return multi_modal(self.gather(*parts), self.backend, self.variant)

    def _merged(self, session: Session, row: PlannedRow) -> MultiModalResult:
        """The result in a gallery of the first tasks, from one search for all such galleries."""
        parts = self._parts(session, max((one.tasks for one in session.job.rows), key=len))
        with session.timed_search(row):
            growing = session.once("merged", lambda: self._search_merged(*parts))
            count = len(row.tasks)
            return result(growing.items.first(count), growing.first(count), self.variant)

    def _search_merged(
        self, queries: Sequence[FusedFeatures], gallery: Sequence[FusedFeatures]
    ) -> HitSearch:
        return HitSearch(self.gather_growing(queries, gallery), self.backend, TOP)

    def _parts(
        self, session: Session, tasks: Sequence[int]
    ) -> tuple[Sequence[FusedFeatures], Sequence[FusedFeatures]]:
        """The fused features of the queries and of the gallery: one object where they are one."""
        queries = [self._part(session, number, self.queries) for number in tasks]
        if self.gallery == self.queries:
            return queries, queries
        return queries, [self._part(session, number, self.gallery) for number in tasks]

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
    search: ClassSearch, backend: Backend, variant: str = DEFAULT_VARIANT
) -> MultiModalResult:
    """Search the gallery for every query, leaving the query itself out."""
    return result(search, HitSearch(GrowingItems.of(search), backend, TOP).first(), variant)


def result(search: ClassSearch, hits: Hits, variant: str = DEFAULT_VARIANT) -> MultiModalResult:
    """The mean average precisions of a search."""
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
