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
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.exact_ranks import exact_ranks
from vlcpctl.evaluation.search.gallery import GATHER, Embeddings, Gallery
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.ranks import Queries, Ranks, rank
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
        self.open_index = choose(compute.backend, compute.device)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        parts = [self._part(session, number) for number in row.tasks]
        gallery = self.gather(parts)
        with session.timed_search(row):
            found = search(gallery, self.open_index)
        if self.plan.ranks is not None:
            self._save_ranks(self.plan.ranks, session, row, found)
        return dataclasses.asdict(result(gallery, found))

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
        for way, (queries, ranks) in found.items():
            with session.timed("ranks", direction=way, tasks=row.fields["tasks"]):
                exact = exact_ranks(queries, ranks, TOP, session.compute.device)
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


BothWays = Mapping[str, tuple[Queries, Ranks]]  # by direction: i2t and t2i


def search(gallery: Gallery, open_index: OpenIndex) -> BothWays:
    """The ranks, up to TOP, of every image as a query for texts, and the other way round."""
    images, texts = gallery.image_ID, gallery.text_TD
    of_images = Queries(images, texts, gallery.texts_of_images())
    of_texts = Queries(texts, images, gallery.images_of_texts())
    return {
        "i2t": (of_images, rank(of_images, open_index(texts), TOP)),
        "t2i": (of_texts, rank(of_texts, open_index(images), TOP)),
    }


def result(gallery: Gallery, found: BothWays) -> CrossModalResult:
    """The recalls of a search."""
    (_, i2t), (_, t2i) = found["i2t"], found["t2i"]
    return CrossModalResult(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(gallery.image_ID),
        n_texts=len(gallery.text_TD),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )


def cross_modal(gallery: Gallery, open_index: OpenIndex) -> CrossModalResult:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    return result(gallery, search(gallery, open_index))
