"""Cross-modal retrieval: recalls of texts for images and of images for texts in one gallery.

Each task is embedded once for all its galleries. The gallery may be by another checkpoint than the
queries, and may have distractors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.embedding import embed
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.rank_files import Named
from vlcpctl.evaluation.retrieval.pair_probabilities import (
    PairProbability,
    calibration_beside,
    calibrations,
)
from vlcpctl.evaluation.rows import Row
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.count import exact_ranks, ranks
from vlcpctl.evaluation.search.distractors import counts, with_distractors
from vlcpctl.evaluation.search.galleries import Embeddings, Gallery, Search, gather
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.files.parts import Result
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)


@dataclass(frozen=True)
class Found:
    """What was counted for both directions in the galleries of the first 1, 2, ... parts.

    `arrays` are those of `ranks` or `exact_ranks`.
    """

    searches: Mapping[str, Search]
    arrays: Mapping[str, Result]

    def at(self, way: str, parts: int = 1) -> list[np.ndarray]:
        """The arrays of a direction for the queries that are asked in the first parts."""
        rows = self.searches[way].asked(parts)
        return [array[parts - 1, rows].astype(np.int64) for array in self.arrays[way]]

    def measured(self, parts: int = 1) -> dict[str, Any]:
        """The recalls in percent; `n_ties` queries would differ if they won their ties."""
        (i2t, best_i2t, *_), (t2i, best_t2i, *_) = (
            [1 + np.minimum(one, TOP) for one in self.at(way, parts)[:2]] for way in ("i2t", "t2i")
        )
        return {
            "metrics": recalls(i2t, t2i),
            "n_images": len(i2t),
            "n_texts": len(t2i),
            "n_ties": count_touched(i2t, best_i2t) + count_touched(t2i, best_t2i),
        }


@final
@dataclass(frozen=True)
class CrossModal:
    """Recalls in galleries of the tasks whose samples are given, each embedded once.

    `distractors` are samples whose images and captions are added to every gallery, embedded as the
    gallery is or, if `are_new`, by the checkpoint of the session.
    """

    sources: Sequence[Samples]
    duplicates: str
    distractors: Sequence[Samples] = ()
    are_new: bool = False
    galleries: dict[tuple[int, ...], Gallery] = field(default_factory=dict)  # for all checkpoints

    def measure(self, session: Session, by: Session, row: Row) -> dict[str, Any]:
        """The measured fields of a row; the session `by` embeds the gallery.

        The row's ranks are saved, if the evaluation has a file for them.
        """
        found, parts = self.find(session, by, row)
        assert found is not None, "only a shard stores what it finds"
        self._save_ranks(session, row, found, parts)
        measured = found.measured(parts)
        if self.distractors:
            measured |= counts(self._gallery(row.tasks))
        measured["metrics"] |= self._calibration(session, row)
        return measured

    def embed(self, session: Session, by: Session, tasks: Iterable[int]) -> None:
        """Embed the samples of tasks, by their numbers, and the distractors as rows need them."""
        for source in [self.sources[number] for number in tasks]:
            embed(session, source)
            embed(by, source)
        for source in self.distractors:
            embed(session if self.are_new else by, source)

    def find(self, session: Session, by: Session, row: Row) -> tuple[Found | None, int]:
        """What was counted for a row, whose gallery has so many parts.

        None for a shard, which stores its share. All merged galleries are one that grows, unless
        there are distractors: what of those is left out differs between the first tasks.
        """
        if not self._is_growing(row):
            return self._count(session, by, row), 1
        found = session.once("merged", lambda: self._count(session, by, session.largest))
        return found, len(row.tasks)

    def _is_growing(self, row: Row) -> bool:
        return row.fields["gallery"] == "merged" and not self.distractors

    def _count(self, session: Session, by: Session, row: Row) -> Found | None:
        gallery = self._gallery(row.tasks)
        own = [self.sources[number] for number in row.tasks]
        queries = gallery.vectors([embed(session, one) for one in own])
        others = [embed(session if self.are_new else by, one) for one in self.distractors]
        searches = gallery.searches(
            queries, gallery.vectors([*(embed(by, one) for one in own), *others])
        )
        with session.timed("search", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            arrays = {way: _shared(session, row, way, one) for way, one in searches.items()}
        found = {way: one for way, one in arrays.items() if one is not None}
        return Found(searches, found) if found else None

    def _gallery(self, tasks: tuple[int, ...]) -> Gallery:
        """The gallery of tasks, by their numbers, with distractors."""
        if tasks not in self.galleries:
            if self.distractors:  # a large one for each row
                self.galleries.clear()
            own = [self.sources[number].captioned for number in tasks]
            found = gather(own, self.duplicates)
            if self.distractors:
                others = [one.captioned for one in self.distractors]
                found = with_distractors(found.in_one_part(), own, others, self.duplicates)
            self.galleries[tasks] = found
        return self.galleries[tasks]

    def _calibration(self, session: Session, row: Row) -> dict[str, float]:
        """Whether the probabilities of a sigmoid's model hold; empty for others.

        On an index, too: neither model's temperature and bias were trained on similarities of both.
        """
        judge = PairProbability.of(session.encoder.weights())
        if judge is None or "gallery_checkpoint" in row.fields:
            return {}
        device = session.evaluator.device
        most = session.largest if self._is_growing(row) else row
        gallery = self._gallery(most.tasks)
        parts = [*(self.sources[number] for number in most.tasks), *self.distractors]
        with session.timed("calibration", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            vectors = gallery.vectors([embed(session, one) for one in parts])
            if not self._is_growing(row):
                return calibration_beside(gallery, vectors, judge, device)
            every = session.once(
                "calibration", lambda: calibrations(gallery, vectors, judge, device)
            )
            return every[len(row.tasks) - 1]

    def _save_ranks(self, session: Session, row: Row, found: Found, parts: int) -> None:
        file = session.evaluator.ranks
        if file is None:
            return
        tasks = session.largest.tasks if self._is_growing(row) else row.tasks
        own = [self.sources[number] for number in tasks]
        names = entry_names([*own, *self.distractors], self._gallery(tasks))
        for way, (queries, answers) in {"i2t": names, "t2i": names[::-1]}.items():
            worst, _, wrong, wrong_rank = found.at(way, parts)
            file.add(row, way, (queries, answers), (1 + worst, wrong, wrong_rank))


def _shared(session: Session, row: Row, way: str, search: Search) -> Result | None:
    """What is counted for a direction; None for a shard, which stores its share of it."""
    evaluator = session.evaluator

    def find(some: range) -> Result:
        part = search.of_rows(np.arange(some.start, some.stop))
        if evaluator.ranks is None:
            return ranks(part, evaluator.device, TOP)
        return exact_ranks(part, evaluator.device)

    kind = f"ranks up to {TOP}" if evaluator.ranks is None else "exact ranks"
    return session.shared(row.search(f"{kind}, {way}"), len(search), find)


def entry_names(parts: Sequence[Samples], gallery: Gallery) -> tuple[Named, Named]:
    """The names of the images and texts of a gallery of these parts.

    A file of ranks refers to them by these names.
    """
    keys = pa.concat_arrays([part.split.keys.texts() for part in parts])
    first_of_part = np.cumsum([0, *(len(part.split.keys) for part in parts)])

    def keys_of(part_and_sample: np.ndarray) -> pa.Array:
        return keys.take(pa.array(first_of_part[part_and_sample[:, 0]] + part_and_sample[:, 1]))

    captions = pa.array(gallery.text_E3[:, 2], pa.int32())
    return Named(keys_of(gallery.image_E2)), Named(keys_of(gallery.text_E3), captions)


def cross_modal(
    image_ID: Vectors, text_TD: Vectors, pairs_P2: np.ndarray, device: str
) -> dict[str, Any]:
    """Recalls with every image as a query for texts, and every text as a query for images.

    `pairs_P2` are the rows of images and texts that match.
    """
    searches = Gallery.of(pairs_P2, (len(image_ID), len(text_TD))).searches(
        *[Embeddings(image_ID, text_TD)] * 2
    )
    arrays = {way: ranks(search, device, TOP) for way, search in searches.items()}
    return Found(searches, arrays).measured()
