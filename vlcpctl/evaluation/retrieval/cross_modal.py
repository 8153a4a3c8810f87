"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from vlcpctl.core.atomic import new_directory
from vlcpctl.core.digests import digests_of
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import MANIFESTS, write_manifest
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.embedding_files import write_part
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.rank_files import RankFile
from vlcpctl.evaluation.retrieval.entry_names import entry_names
from vlcpctl.evaluation.retrieval.plan import RetrievalPlan
from vlcpctl.evaluation.search.backends import Backend, choose
from vlcpctl.evaluation.search.gallery import (
    GATHER,
    GATHER_GROWING,
    Embeddings,
    Gallery,
)
from vlcpctl.evaluation.search.queries import Queries, both_ways, growing_ways
from vlcpctl.evaluation.search.ranks import RankSearch, search_ranks
from vlcpctl.evaluation.session import Session
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@final
class CrossModalEvaluator(Evaluator):
    """Recalls in galleries of the tasks of a plan."""

    def __init__(self, plan: RetrievalPlan, compute: Compute) -> None:
        (split,) = plan.request.splits
        self.plan = plan
        self.sources = [EvalSplit(task, split, plan.request.limit) for task in plan.request.tasks]
        self.gather = GATHER[plan.request.duplicates]
        self.gather_growing = GATHER_GROWING[plan.request.duplicates]
        self.backend = choose(compute.backend, compute.device)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        is_merged = row.fields["gallery"] == "merged"
        found = self._merged(session, row) if is_merged else self._own(session, row)
        parts = len(row.tasks) if is_merged else 1
        if self.plan.ranks is not None:
            self._save_ranks(self.plan.ranks, session, row, found, parts)
        return dataclasses.asdict(result(found, parts))

    def _own(self, session: Session, row: PlannedRow) -> BothWays:
        gallery = self.gather([self._part(session, number) for number in row.tasks])
        with session.timed_search(row):
            return self._search(both_ways(gallery))

    def _merged(self, session: Session, row: PlannedRow) -> BothWays:
        """The ranks in the galleries of the first tasks, from one search for all of them."""
        last = max((one.tasks for one in session.job.rows), key=len)
        parts = [self._part(session, number) for number in last]
        with session.timed_search(row):
            return session.once(
                "merged", lambda: self._search(growing_ways(self.gather_growing(parts)))
            )

    def _search(self, ways: Mapping[str, Queries]) -> BothWays:
        return search(ways, self.backend, is_exact=self.plan.ranks is not None)

    def finish(self, session: Session) -> None:
        """Save the embeddings of every task, if --save-embeddings is given."""
        saved = self.plan.embeddings.get(session.checkpoint)
        if saved is None:
            return
        identity = saved.identity
        with new_directory(saved.out, MANIFESTS["embeddings"]) as directory:
            for number, source in enumerate(self.sources):
                part = self._part(session, number)
                write_part(directory, number, len(self.sources), part, source.samples())
            names = [source.task.slug for source in self.sources]
            body = {
                "tasks": names,
                "inputs": [identity["checkpoint"], *identity["tasks"]],
                "digests": digests_of(directory),
            }
            write_manifest(directory, "embeddings", identity, content_id(identity), body)

    def _save_ranks(
        self, file: RankFile, session: Session, row: PlannedRow, found: BothWays, count: int
    ) -> None:
        parts = [self.sources[number] for number in row.tasks]
        images, texts = entry_names(parts, self.plan.request.duplicates)
        for way, one in found.items():
            with session.timed("ranks", direction=way, tasks=row.fields["tasks"]):
                exact = one.exact(count)
            file.add(row, way, (images, texts) if way == "i2t" else (texts, images), exact)

    def _part(self, session: Session, number: int) -> Embeddings:
        """The embeddings of one task, computed once for all galleries."""
        return session.once(number, lambda: self._embed(session, self.sources[number]))

    def _embed(self, session: Session, source: EvalSplit) -> Embeddings:
        counts = {"images": len(source.layout.image_ids), "texts": len(source.layout.texts)}
        with session.timed("embed", task=source.task.slug, **counts):
            return embed(session.encoder, source, session.checkpoint, session.compute)


@dataclass(frozen=True)
class CrossModalResult:
    """The recalls in percent; `n_ties` queries would differ if they won their ties."""

    metrics: dict[str, float]
    n_images: int
    n_texts: int
    n_ties: int


BothWays = Mapping[str, RankSearch]  # by direction: i2t and t2i


def search(ways: Mapping[str, Queries], backend: Backend, *, is_exact: bool = False) -> BothWays:
    """The ranks of both directions, up to TOP or exact."""
    return {
        way: search_ranks(queries, backend, TOP, is_exact=is_exact) for way, queries in ways.items()
    }


def result(found: BothWays, parts: int = 1) -> CrossModalResult:
    """The recalls of a search in the gallery of the first tasks."""
    i2t, t2i = found["i2t"].ranks(parts), found["t2i"].ranks(parts)
    return CrossModalResult(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(i2t.worst),
        n_texts=len(t2i.worst),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )


def cross_modal(gallery: Gallery, backend: Backend) -> CrossModalResult:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    return result(search(both_ways(gallery), backend))
