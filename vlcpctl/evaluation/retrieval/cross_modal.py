"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

from vlcpctl.core.atomic import new_directory
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import MANIFESTS, write_manifest
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.embedding_files import write_part
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.retrieval.plan import RetrievalPlan
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import GATHER, Embeddings, Gallery
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.ranks import Queries, rank
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
        with session.timed_search(row):
            found = cross_modal(self.gather(parts), self.open_index)
        return dataclasses.asdict(found)

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
            body = {"tasks": names, "inputs": [identity["checkpoint"], *identity["tasks"]]}
            write_manifest(directory, "embeddings", identity, content_id(identity), body)

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


def cross_modal(gallery: Gallery, open_index: OpenIndex) -> CrossModalResult:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    images, texts = gallery.image_ID, gallery.text_TD
    i2t = rank(Queries(images, texts, gallery.texts_of_images()), open_index(texts), TOP)
    t2i = rank(Queries(texts, images, gallery.images_of_texts()), open_index(images), TOP)
    return CrossModalResult(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(images),
        n_texts=len(texts),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )
