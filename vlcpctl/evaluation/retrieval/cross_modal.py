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
from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.embedding_files import write_part
from vlcpctl.evaluation.layout import LaidOut
from vlcpctl.evaluation.planned_rows import Cell
from vlcpctl.evaluation.retrieval.plan import Request
from vlcpctl.evaluation.search.gallery import GATHER, Embedded, Gallery
from vlcpctl.evaluation.search.index import OpenIndex
from vlcpctl.evaluation.search.ranks import Queries, rank
from vlcpctl.evaluation.session import Evaluated
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@final
class CrossModalTasks:
    """The tasks of a request, read once for all checkpoints."""

    def __init__(self, request: Request, open_index: OpenIndex) -> None:
        (split,) = request.splits
        self.sources = [LaidOut(task, split, request.limit) for task in request.tasks]
        self.gather, self.open_index = GATHER[request.duplicates], open_index

    def seen_by(self, model: Evaluated) -> _CrossModal:
        """The measurements of one checkpoint on the tasks."""
        return _CrossModal(self, model)


class _CrossModal:
    """Implements `session.Measure`."""

    def __init__(self, tasks: CrossModalTasks, model: Evaluated) -> None:
        self.tasks, self.sources, self.model = tasks, tasks.sources, model
        self._embedded: dict[int, Embedded] = {}

    def measured(self, cell: Cell) -> dict[str, Any]:
        parts = [self._part(number) for number in cell.tasks]
        with self.model.searching(cell):
            found = cross_modal(self.tasks.gather(parts), self.tasks.open_index)
        return dataclasses.asdict(found)

    def save(self) -> None:
        """Write the embeddings of every task of the request."""
        out, identity = self.model.job.embeddings, self.model.job.embeddings_identity
        assert out is not None
        with new_directory(out, MANIFESTS["embeddings"]) as directory:
            for number, source in enumerate(self.sources):
                part = self._part(number)
                write_part(directory, number, len(self.sources), part, source.samples())
            names = [source.task.slug for source in self.sources]
            body = {"tasks": names, "inputs": [identity["checkpoint"], *identity["tasks"]]}
            write_manifest(directory, "embeddings", identity, content_id(identity), body)

    def _part(self, number: int) -> Embedded:
        """The embeddings of one task, computed at first use."""
        if number not in self._embedded:
            source, layout = self.sources[number], self.sources[number].layout
            counts = {"images": len(layout.image_ids), "texts": len(layout.texts)}
            with self.model.timed("embed", task=source.task.slug, **counts):
                self._embedded[number] = embed(
                    self.model.encoder,
                    source.split,
                    layout,
                    batch_size=self.model.means.batch_size,
                    workers=self.model.means.workers,
                    what=f"{self.model.job.checkpoint} on {source.task.slug}",
                )
        return self._embedded[number]


@dataclass(frozen=True)
class Result:
    """The recalls in percent; `n_ties` queries would differ if they won their ties."""

    metrics: dict[str, float]
    n_images: int
    n_texts: int
    n_ties: int


def cross_modal(gallery: Gallery, open_index: OpenIndex) -> Result:
    """Recalls with every image as a query for texts, and every text as a query for images."""
    images, texts = gallery.image_ID, gallery.text_TD
    i2t = rank(Queries(images, texts, gallery.texts_of_images()), open_index(texts), TOP)
    t2i = rank(Queries(texts, images, gallery.images_of_texts()), open_index(images), TOP)
    return Result(
        metrics=recalls(i2t.worst, t2i.worst),
        n_images=len(images),
        n_texts=len(texts),
        n_ties=count_touched(i2t.worst, i2t.best) + count_touched(t2i.worst, t2i.best),
    )
