"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

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
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.exact_ranks import GrowingExactRanks, exact_ranks
from vlcpctl.evaluation.search.gallery import (
    GATHER,
    GATHER_GROWING,
    Embeddings,
    Gallery,
    GrowingGallery,
)
from vlcpctl.evaluation.search.growing_ranks import GrowingQueries, growing_ranks
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.ranks import ExactRanks, Queries, Ranks, rank
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
        self.open_index = choose(compute.backend, compute.device)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        is_merged = row.fields["gallery"] == "merged"
        found = self._merged(session, row) if is_merged else self._own(session, row)
        if self.plan.ranks is not None:
            self._save_ranks(self.plan.ranks, session, row, found)
        return dataclasses.asdict(result(found))

    def _own(self, session: Session, row: PlannedRow) -> BothWays:
        gallery = self.gather([self._part(session, number) for number in row.tasks])
        with session.timed_search(row):
            return search(gallery, self.open_index)

    def _merged(self, session: Session, row: PlannedRow) -> BothWays:
        """The ranks in a gallery of the first tasks, from one search for all of these galleries."""
        last = max((one.tasks for one in session.job.rows), key=len)
        parts = [self._part(session, number) for number in last]
        with session.timed_search(row):
            growing = session.once("merged", lambda: self._search_merged(parts))
            return growing.first(len(row.tasks))

    def _search_merged(self, parts: Sequence[Embeddings]) -> GrowingSearch:
        return GrowingSearch(self.gather_growing(parts), self.open_index)

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
        self, file: RankFile, session: Session, row: PlannedRow, found: BothWays
    ) -> None:
        parts = [self.sources[number] for number in row.tasks]
        images, texts = entry_names(parts, self.plan.request.duplicates)
        for way, one in found.items():
            with session.timed("ranks", direction=way, tasks=row.fields["tasks"]):
                exact = one.exact(session.compute.device)
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


@dataclass(frozen=True)
class OneWay:
    """The ranks of queries up to TOP; `exact` computes the exact ones on a device."""

    ranks: Ranks
    exact: Callable[[str], ExactRanks]


BothWays = Mapping[str, OneWay]  # by direction: i2t and t2i


def search(gallery: Gallery, open_index: OpenIndex) -> BothWays:
    """The ranks, up to TOP, of every image as a query for texts, and the other way round."""
    images, texts = gallery.image_ID, gallery.text_TD
    return {
        "i2t": _one_way(Queries(images, texts, gallery.texts_of_images()), open_index),
        "t2i": _one_way(Queries(texts, images, gallery.images_of_texts()), open_index),
    }


def _one_way(queries: Queries, open_index: OpenIndex) -> OneWay:
    ranks = rank(queries, open_index(queries.gallery_GD), TOP)
    return OneWay(ranks, lambda device: exact_ranks(queries, ranks, TOP, device))


class GrowingSearch:
    """The ranks in all galleries of the first 1, 2, ... N tasks."""

    def __init__(self, gallery: GrowingGallery, open_index: OpenIndex) -> None:
        self._ways = {
            way: _GrowingWay(queries, open_index)
            for way, queries in growing_queries(gallery).items()
        }

    def first(self, parts: int) -> BothWays:
        """The ranks in the gallery of the first tasks, as `search` gives them."""
        return {way: one.first(parts) for way, one in self._ways.items()}


def growing_queries(gallery: GrowingGallery) -> dict[str, GrowingQueries]:
    """The queries of both directions in a gallery that grows task by task."""
    whole, part_P = gallery.whole, gallery.part_P
    images, texts = whole.image_ID, whole.text_TD
    image_P, text_P = whole.pairs_P2.T
    of_images = Queries(images, texts, whole.texts_of_images())
    of_texts = Queries(texts, images, whole.images_of_texts())
    ends = (gallery.image_ends, gallery.text_ends)
    # In the order of right answers: by query, then by answer.
    return {
        "i2t": GrowingQueries(of_images, part_P[np.lexsort((text_P, image_P))], *ends),
        "t2i": GrowingQueries(of_texts, part_P[np.lexsort((image_P, text_P))], *ends[::-1]),
    }


class _GrowingWay:
    """One direction; the exact ranks are computed when they are first needed."""

    def __init__(self, queries: GrowingQueries, open_index: OpenIndex) -> None:
        self.queries, self.ranks = queries, growing_ranks(queries, open_index, TOP)
        self._exact: GrowingExactRanks | None = None

    def first(self, parts: int) -> OneWay:
        ranks = self.ranks.first(parts)
        return OneWay(ranks, lambda device: self._in(parts, ranks, device))

    def _in(self, parts: int, ranks: Ranks, device: str) -> ExactRanks:
        if self._exact is None:
            self._exact = GrowingExactRanks(self.queries, device)
        return self._exact.first(parts, ranks, TOP)


def result(found: BothWays) -> CrossModalResult:
    """The recalls of a search."""
    i2t, t2i = found["i2t"].ranks, found["t2i"].ranks
    return CrossModalResult(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(i2t.worst),
        n_texts=len(t2i.worst),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )


def cross_modal(gallery: Gallery, open_index: OpenIndex) -> CrossModalResult:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    return result(search(gallery, open_index))
