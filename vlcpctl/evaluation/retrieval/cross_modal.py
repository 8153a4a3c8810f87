"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries. The gallery may be by another checkpoint than the
queries, and may have distractors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.rank_files import Named, RankFile
from vlcpctl.evaluation.retrieval.pair_probabilities import (
    PairProbability,
    calibration_beside,
    calibrations,
)
from vlcpctl.evaluation.search.backends import Backend
from vlcpctl.evaluation.search.distractors import Distractors, choose_distractors
from vlcpctl.evaluation.search.gallery import (
    GATHER,
    GATHER_GROWING,
    SOURCES,
    Embeddings,
    EntrySources,
    Gallery,
)
from vlcpctl.evaluation.search.queries import Queries, both_ways, growing_ways
from vlcpctl.evaluation.search.ranks import RankSearch, find_ranks, search_ranks
from vlcpctl.evaluation.search.scan import Scanned
from vlcpctl.evaluation.splits import EvalSplit
from vlcpctl.files.parts import Result
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@final
@dataclass(frozen=True)
class CrossModal:
    """Recalls in galleries of the tasks whose splits are given, each embedded once.

    `gallery_checkpoint` embeds the galleries (None: the checkpoint of the session). `distractors`
    are splits whose images and captions are added to every gallery, embedded as the gallery is or,
    if `are_new`, by the checkpoint of the session. `kept` has the embeddings of the galleries by
    another checkpoint, which all sessions share.
    """

    sources: Sequence[EvalSplit]
    duplicates: str
    backend: Backend
    gallery_checkpoint: Path | None = None
    distractors: Sequence[EvalSplit] = ()
    are_new: bool = False
    kept: dict[EvalSplit, Embeddings] = field(default_factory=dict)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """The measured fields of a row; its ranks are saved, if the plan has a file for them."""
        found, parts, chosen = self._find(session, row)
        assert found is not None, "only a shard stores what it finds"
        if session.plan.ranks is not None:
            self._save_ranks(session.plan.ranks, session, row, found, parts, chosen)
        measured = asdict(result(found, parts)) | ({} if chosen is None else chosen.counts)
        measured["metrics"] |= self._calibration(session, row, chosen)
        return measured

    def find(self, session: Session, row: PlannedRow) -> BothWays | None:
        """What a row is measured from; None for a shard, which stores its share of it."""
        return self._find(session, row)[0]

    def embed(self, session: Session, tasks: Iterable[int]) -> None:
        """Embed the splits of tasks, by their numbers, and the distractors as rows need them."""
        for source in [self.sources[number] for number in tasks]:
            embedded(session, source)
            self._in_gallery(session, source)
        for source in self.distractors:
            (embedded if self.are_new else self._in_gallery)(session, source)

    def _find(
        self, session: Session, row: PlannedRow
    ) -> tuple[BothWays | None, int, Distractors | None]:
        """The ranks in the gallery of a row, which has so many parts, and its distractors."""
        if row.fields["gallery"] == "merged" and not self.distractors:
            return self._merged(session, row), len(row.tasks), None
        # With distractors, what is left out differs between the galleries of the first tasks.
        chosen = self._distractors(row) if self.distractors else None
        return self._one(session, row, chosen), 1, chosen

    def _one(
        self, session: Session, row: PlannedRow, chosen: Distractors | None
    ) -> BothWays | None:
        """The ranks in one gallery."""
        gather = GATHER[self.duplicates]
        queries = gather([embedded(session, one) for one in self._splits(row)])
        gallery = queries
        if self.gallery_checkpoint is not None:
            gallery = gather([self._in_gallery(session, one) for one in self._splits(row)])
        if chosen is not None:
            embed_it = embedded if self.are_new else self._in_gallery
            gallery = chosen.added_to(gallery, [embed_it(session, one) for one in self.distractors])
        with session.timed_search(row):
            return self._search(session, row, both_ways(queries, gallery))

    def _merged(self, session: Session, row: PlannedRow) -> BothWays | None:
        """The ranks in the galleries of the first tasks, from one search for all of them."""
        most = max(session.job.rows, key=lambda one: len(one.tasks))
        splits = self._splits(most)
        gather = GATHER_GROWING[self.duplicates]
        parts = [embedded(session, one) for one in splits]
        by_other = [self._in_gallery(session, one) for one in splits]

        def find() -> BothWays | None:
            searched = None if self.gallery_checkpoint is None else gather(by_other)
            return self._search(session, most, growing_ways(gather(parts), searched))

        with session.timed_search(row):
            return session.once("merged", find)

    def _search(
        self, session: Session, row: PlannedRow, ways: Mapping[str, Queries]
    ) -> BothWays | None:
        """The ranks of both directions; None for a shard, which stores its share of them."""
        is_exact = session.plan.ranks is not None
        kind = "exact ranks" if is_exact else f"ranks up to {TOP}"

        def found(way: str, queries: Queries) -> RankSearch | None:
            def find(some: range) -> Result:
                own = queries if len(some) == len(queries) else queries.at(np.array(some, np.int64))
                return find_ranks(own, self.backend, TOP, is_exact=is_exact).arrays

            arrays = session.shared(row.search(f"{kind}, {way}"), len(queries), find)
            return None if arrays is None else RankSearch(queries, TOP, Scanned(*arrays))

        ways_found = {way: found(way, queries) for way, queries in ways.items()}
        return {way: one for way, one in ways_found.items() if one is not None} or None

    def _calibration(
        self, session: Session, row: PlannedRow, chosen: Distractors | None
    ) -> dict[str, float]:
        """Whether the probabilities of a sigmoid's model hold; empty for others.

        On an index, too: neither model's temperature and bias were trained on similarities of both.
        """
        judge = PairProbability.of(session.encoder.weights())
        if judge is None or "gallery_checkpoint" in row.fields:
            return {}
        device = self.backend.device
        is_growing = row.fields["gallery"] == "merged" and chosen is None
        most = max(session.job.rows, key=lambda one: len(one.tasks)) if is_growing else row
        parts = [embedded(session, one) for one in self._splits(most)]
        with session.timed("calibration", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            if is_growing:
                every = session.once(
                    "calibration",
                    lambda: calibrations(GATHER_GROWING[self.duplicates](parts), judge, device),
                )
                return every[len(row.tasks) - 1]
            gallery = GATHER[self.duplicates](parts)
            own = len(gallery.image_ID), len(gallery.text_TD)
            if chosen is not None:
                beside = [embedded(session, one) for one in self.distractors]
                gallery = chosen.added_to(gallery, beside)
            return calibration_beside(gallery, own, judge, device)

    def _splits(self, row: PlannedRow) -> list[EvalSplit]:
        return [self.sources[number] for number in row.tasks]

    def _in_gallery(self, session: Session, source: EvalSplit) -> Embeddings:
        """The embeddings of a split as a gallery has them."""
        if self.gallery_checkpoint is None:
            return embedded(session, source)
        if session.compute.embeds_share:  # it has none to keep
            return embedded(session, source, self.gallery_checkpoint)
        if source not in self.kept:
            self.kept[source] = embedded(session, source, self.gallery_checkpoint)
        return self.kept[source]

    def _distractors(self, row: PlannedRow) -> Distractors:
        own = [one.layout for one in self._splits(row)]
        return choose_distractors(own, [one.layout for one in self.distractors], self.duplicates)

    def _save_ranks(
        self,
        file: RankFile,
        session: Session,
        row: PlannedRow,
        found: BothWays,
        count: int,
        chosen: Distractors | None,
    ) -> None:
        splits = self._splits(row)
        own = SOURCES[self.duplicates]([one.layout for one in splits])
        images, texts = entry_names(splits, own)
        if chosen is not None:
            more = entry_names(self.distractors, chosen.sources)
            images, texts = images.followed_by(more[0]), texts.followed_by(more[1])
        for way, one in found.items():
            with session.timed("ranks", direction=way, tasks=row.fields["tasks"]):
                exact = one.exact(count)
            file.add(row, way, (images, texts) if way == "i2t" else (texts, images), exact)


def embedded(session: Session, source: EvalSplit, checkpoint: Path | None = None) -> Embeddings:
    """The embeddings of a split by a checkpoint, by default that of the session, computed once."""
    path = session.checkpoint if checkpoint is None else checkpoint

    def embed_it() -> Embeddings:
        counts = {"images": len(source.layout.image_ids), "texts": len(source.layout.texts)}
        encoder = session.encoder
        if path != session.checkpoint:
            encoder = session.once(path, lambda: session.load(path))
        with session.timed("embed", task=source.task.slug, **counts):
            return embed(encoder, source, path, session.compute)

    return session.once((source, path), embed_it)


def entry_names(parts: Sequence[EvalSplit], sources: EntrySources) -> tuple[Named, Named]:
    """The names of images (I,) and texts (T,) that come from these splits.

    A file of ranks refers to them by these names.
    """
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
