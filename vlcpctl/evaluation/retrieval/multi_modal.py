"""Multi-modal retrieval: fused image-text pairs retrieve others of their class.

Each task is fused once for all its galleries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from vlcpctl.evaluation.embedding import fuse
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.hits import HitSearch, find_hits
from vlcpctl.evaluation.search.items import (
    GATHER_ITEMS,
    FusedFeatures,
)
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
@dataclass(frozen=True)
class MultiModal:
    """Mean average precision in galleries of the tasks whose splits are given, each fused once.

    The first of `splits` is that of the queries, the last that of the gallery; they may be one.
    """

    splits: Sequence[Sequence[EvalSplit]]
    duplicates: str
    backend: Backend
    variant: str

    def measure(self, session: Session, row: PlannedRow) -> MultiModalResult:
        """The mean average precisions of a row."""
        found = self.find(session, row)
        assert found is not None, "only a shard stores what it finds"
        return result(found, len(row.tasks), self.variant)

    def find(self, session: Session, row: PlannedRow) -> HitSearch | None:
        """The hits that a row is measured from; None for a shard, which stores its share of them.

        Those in the galleries of the first tasks are from one search for all such galleries.
        """
        is_own = row.fields["gallery"] == "own"
        most = row if is_own else max(session.job.rows, key=lambda one: len(one.tasks))
        parts = self._parts(session, most)

        def search() -> HitSearch | None:
            items = GATHER_ITEMS[self.duplicates](*parts)

            def hits(some: range) -> tuple[np.ndarray]:
                return (find_hits(items, self.backend, TOP, some),)

            found = session.shared(most.search("hits"), len(items.whole.class_Q), hits)
            return None if found is None else HitSearch(items, TOP, found[0])

        with session.timed_search(row):
            return search() if is_own else session.once("merged", search)

    def embed(self, session: Session, tasks: Iterable[int]) -> None:
        """Fuse the splits of tasks, by their numbers."""
        for number in tasks:
            for split in self.splits:
                _fused(session, split[number])

    def _parts(
        self, session: Session, row: PlannedRow
    ) -> tuple[Sequence[FusedFeatures], Sequence[FusedFeatures]]:
        """The fused features of the queries and of the gallery: one object where they are one."""
        parts = [[_fused(session, split[number]) for number in row.tasks] for split in self.splits]
        return parts[0], parts[-1]


def _fused(session: Session, source: EvalSplit) -> FusedFeatures:
    """The fused features of a split by the checkpoint of a session, computed once."""

    def fuse_it() -> FusedFeatures:
        where = {"task": source.task.slug, "split": source.name}
        with session.timed("embed", **where, pairs=len(source.items.texts)):
            return fuse(session.fusion_encoder, source, session.checkpoint, session.compute)

    return session.once(source, fuse_it)


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


def result(found: HitSearch, parts: int = 1, variant: str = DEFAULT_VARIANT) -> MultiModalResult:
    """The mean average precisions in the gallery of the first parts."""
    search, hits = found.items.first(parts), found.first(parts)
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
