"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.rank_files import Named, RankFile
from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.gallery import (
    GATHER,
    GATHER_GROWING,
    SOURCES,
    Embeddings,
    Gallery,
)
from vlcpctl.evaluation.search.queries import Queries, both_ways, growing_ways
from vlcpctl.evaluation.search.ranks import RankSearch, search_ranks
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@final
@dataclass(frozen=True)
class CrossModal:
    """Recalls in galleries of the tasks whose splits are given, each embedded once."""

    sources: Sequence[EvalSplit]
    duplicates: str
    backend: Backend

    def measure(self, session: Session, row: PlannedRow) -> CrossModalResult:
        """The recalls of a row; its ranks are saved, if the plan has a file for them."""
        is_merged = row.fields["gallery"] == "merged"
        found = self._merged(session, row) if is_merged else self._own(session, row)
        parts = len(row.tasks) if is_merged else 1
        if session.plan.ranks is not None:
            self._save_ranks(session.plan.ranks, session, row, found, parts)
        return result(found, parts)

    def _own(self, session: Session, row: PlannedRow) -> BothWays:
        gallery = GATHER[self.duplicates](self._parts(session, row))
        with session.timed_search(row):
            return self._search(session, both_ways(gallery))

    def _merged(self, session: Session, row: PlannedRow) -> BothWays:
        """The ranks in the galleries of the first tasks, from one search for all of them."""
        parts = self._parts(session, max(session.job.rows, key=lambda one: len(one.tasks)))
        gather = GATHER_GROWING[self.duplicates]
        with session.timed_search(row):
            return session.once(
                "merged", lambda: self._search(session, growing_ways(gather(parts)))
            )

    def _search(self, session: Session, ways: Mapping[str, Queries]) -> BothWays:
        return search(ways, self.backend, is_exact=session.plan.ranks is not None)

    def _parts(self, session: Session, row: PlannedRow) -> list[Embeddings]:
        return [embedded(session, self.sources[number]) for number in row.tasks]

    def _save_ranks(
        self, file: RankFile, session: Session, row: PlannedRow, found: BothWays, count: int
    ) -> None:
        parts = [self.sources[number] for number in row.tasks]
        images, texts = entry_names(parts, self.duplicates)
        for way, one in found.items():
            with session.timed("ranks", direction=way, tasks=row.fields["tasks"]):
                exact = one.exact(count)
            file.add(row, way, (images, texts) if way == "i2t" else (texts, images), exact)


def embedded(session: Session, source: EvalSplit) -> Embeddings:
    """The embeddings of a split by the checkpoint of a session, computed once."""

    def embed_it() -> Embeddings:
        counts = {"images": len(source.layout.image_ids), "texts": len(source.layout.texts)}
        with session.timed("embed", task=source.task.slug, **counts):
            return embed(session.encoder, source, session.checkpoint, session.compute)

    return session.once(source, embed_it)


def entry_names(parts: Sequence[EvalSplit], duplicates: str) -> tuple[Named, Named]:
    """The names of the images (I,) and of the texts (T,) of a gallery of these splits.

    A file of ranks refers to them by these names.
    """
    sources = SOURCES[duplicates]([part.layout for part in parts])
    keys = pa.concat_arrays([part.split.keys.texts() for part in parts])
    first_of_part = np.cumsum([0, *(len(part.split.keys) for part in parts)])

    def keys_of(part_and_sample: np.ndarray) -> pa.Array:
        return keys.take(pa.array(first_of_part[part_and_sample[:, 0]] + part_and_sample[:, 1]))

    captions = pa.array(sources.text_T3[:, 2], pa.int32())
    return Named(keys_of(sources.image_I2)), Named(keys_of(sources.text_T3), captions)


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
