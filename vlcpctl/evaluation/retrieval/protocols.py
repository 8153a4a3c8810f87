"""Retrieval in galleries of tasks: cross-modal, and of fused image-text pairs by their class.

Cross-modal are recalls of texts for images and of images for texts; the gallery may be by another
checkpoint than the queries, and may have distractors. Multi-modal is the average precision of
others of a pair's class. Each task is embedded once for all its galleries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.embedding import embed, fuse
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.rank_files import Named
from vlcpctl.evaluation.retrieval.pair_probabilities import (
    PairProbability,
    calibration_beside,
    calibrations,
)
from vlcpctl.evaluation.rows import Row
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.count import exact_ranks, hits, ranks
from vlcpctl.evaluation.search.galleries import (
    COUNTS,
    ClassSearch,
    Embeddings,
    Gallery,
    Search,
    both_ways,
    gather,
    gather_classes,
    with_distractors,
)
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.files.parts import Result
from vlcpctl.metrics import average_precision
from vlcpctl.metrics.recall import CUTOFFS, count_touched, recalls

TOP = max(CUTOFFS)
Hits = tuple[ClassSearch, np.ndarray]  # (2, M, Q, TOP), see `hits`


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

    `index` embeds the galleries in place of each session. `distractors` are samples whose images
    and captions are added to every gallery, embedded as the gallery is or, if `are_new`, by the
    checkpoint of the session.
    """

    sources: Sequence[Samples]
    duplicates: str
    index: Session | None = None
    distractors: Sequence[Samples] = ()
    are_new: bool = False
    galleries: dict[tuple[int, ...], Gallery] = field(default_factory=dict)  # for all checkpoints

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """The measured fields of a row.

        The row's ranks are saved, if the evaluation has a file for them.
        """
        found = self.find(session, row)
        assert found is not None, "only a shard stores what it finds"
        most, parts = (session.largest, len(row.tasks)) if self._grows(row) else (row, 1)
        gallery = self._gallery(most)
        if session.evaluator.ranks is not None:
            names = entry_names([*self._own(most), *self.distractors], gallery)
            for way, sides in {"i2t": names, "t2i": names[::-1]}.items():
                worst, _, wrong, wrong_rank = found.at(way, parts)
                session.evaluator.ranks.add(row, way, sides, (1 + worst, wrong, wrong_rank))
        measured = found.measured(parts)
        if self.distractors:
            behind = gallery.sample_rows[len(most.tasks) :], gallery.caption_rows[len(most.tasks) :]
            added = [sum(map(len, rows)) for rows in behind]
            measured |= dict(zip(COUNTS, (*added, gallery.left_out), strict=True))
        measured["metrics"] |= self._calibration(session, row, most)
        return measured

    def embed(self, session: Session, tasks: Iterable[int]) -> None:
        """Embed the samples of tasks, by their numbers, and the distractors as rows need them."""
        by = self._by(session)
        for number in tasks:
            embed(session, self.sources[number])
            embed(by, self.sources[number])
        for source in self.distractors:
            embed(session if self.are_new else by, source)
        by.drop()  # a shard keeps nothing

    def find(self, session: Session, row: Row) -> Found | None:
        """What was counted for the gallery of a row; None for a shard, which stores its share."""
        if not self._grows(row):
            return self._count(session, row)
        return session.once("merged", lambda: self._count(session, session.largest))

    def _grows(self, row: Row) -> bool:
        """Whether the gallery of a row is the start of that of the session's largest row.

        All merged galleries are one that grows, unless there are distractors: what of those is left
        out differs between the first tasks.
        """
        return row.fields["gallery"] == "merged" and not self.distractors

    def _by(self, session: Session) -> Session:
        """The session that embeds the galleries of another one: its own, or one of all."""
        by = self.index
        return session if by is None or by.manifest.content == session.manifest.content else by

    def _own(self, row: Row) -> list[Samples]:
        return [self.sources[number] for number in row.tasks]

    def _count(self, session: Session, row: Row) -> Found | None:
        gallery, by, own = self._gallery(row), self._by(session), self._own(row)
        queries = gallery.vectors([embed(session, one) for one in own])
        others = [embed(session if self.are_new else by, one) for one in self.distractors]
        searches = gallery.searches(
            queries, gallery.vectors([*(embed(by, one) for one in own), *others])
        )
        with session.timed("search", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            arrays = {way: _shared(session, row, way, one) for way, one in searches.items()}
        found = {way: one for way, one in arrays.items() if one is not None}
        return Found(searches, found) if found else None

    def _gallery(self, row: Row) -> Gallery:
        """The gallery of the tasks of a row, with distractors."""
        if row.tasks not in self.galleries:
            found = gather([one.captioned for one in self._own(row)], self.duplicates)
            if self.distractors:
                self.galleries.clear()  # a large one for each row
                others = [one.captioned for one in self.distractors]
                found = with_distractors(found, others, self.duplicates)
            self.galleries[row.tasks] = found
        return self.galleries[row.tasks]

    def _calibration(self, session: Session, row: Row, most: Row) -> dict[str, float]:
        """Whether the probabilities of a sigmoid's model hold; empty for others.

        On an index, too: neither model's temperature and bias were trained on similarities of both.
        """
        judge = PairProbability.of(session.encoder.weights())
        if judge is None or "gallery_checkpoint" in row.fields:
            return {}
        gallery, device = self._gallery(most), session.evaluator.device
        with session.timed("calibration", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            sources = [*self._own(most), *self.distractors]
            vectors = gallery.vectors([embed(session, one) for one in sources])
            if not self._grows(row):
                return calibration_beside(gallery, vectors, judge, device)
            every = session.once(
                "calibration", lambda: calibrations(gallery, vectors, judge, device)
            )
            return every[len(row.tasks) - 1]


def _shared(session: Session, row: Row, way: str, search: Search) -> Result | None:
    """What is counted for a direction; None for a shard, which stores its share of it."""
    evaluator = session.evaluator

    def find(some: range) -> Result:
        part = search.of_rows(np.arange(some.start, some.stop))
        if evaluator.ranks is None:
            return ranks(part, evaluator.device, TOP)
        return exact_ranks(part, evaluator.device)

    kind = f"ranks up to {TOP}" if evaluator.ranks is None else "exact ranks"
    return session.shared({"what": f"{kind}, {way}", **row.fields}, len(search), find)


def entry_names(parts: Sequence[Samples], gallery: Gallery) -> tuple[Named, Named]:
    """The names of the images and texts of a gallery of these parts, as files of ranks have them.

    Of identical content, they are those of the first sample.
    """
    images, texts, captions = [], [], []
    for number, part in enumerate(parts):
        keys = part.split.keys.texts()
        sample_N, place_N = gallery.parts[number].places(gallery.caption_rows[number])
        images.append(keys.take(pa.array(gallery.sample_rows[number])))
        texts.append(keys.take(pa.array(sample_N)))
        captions.append(pa.array(place_N, pa.int32()))
    image_names, text_names, places = map(pa.concat_arrays, (images, texts, captions))
    return Named(image_names), Named(text_names, places)


def cross_modal(
    image_ID: Vectors, text_TD: Vectors, pairs_P2: np.ndarray, device: str
) -> dict[str, Any]:
    """Recalls with every image as a query for texts, and every text as a query for images.

    `pairs_P2` are the rows of images and texts that match.
    """
    both, unique_P2 = Embeddings(image_ID, text_TD), np.unique(pairs_P2, axis=0)
    ends_M2 = np.array([[len(image_ID), len(text_TD)]])
    searches = both_ways(both, both, unique_P2, 0 * unique_P2[:, 0], ends_M2)
    arrays = {way: ranks(search, device, TOP) for way, search in searches.items()}
    return Found(searches, arrays).measured()


@final
@dataclass(frozen=True)
class MultiModal:
    """Mean average precision in galleries of the tasks whose samples are given, each fused once.

    The first of `splits` is that of the queries, the last that of the gallery; they may be one.
    """

    splits: Sequence[Sequence[Samples]]
    duplicates: str
    variant: str

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """The measured fields of a row."""
        found = self.find(session, row)
        assert found is not None, "only a shard stores what it finds"
        return precisions(*found, len(row.tasks), self.variant)

    def find(self, session: Session, row: Row) -> Hits | None:
        """What a row is measured from; None for a shard, which stores its share of it.

        The hits in the galleries of the first tasks are from one search for all such galleries.
        """
        if row.fields["gallery"] == "own":
            return self._search(session, row)
        return session.once("merged", lambda: self._search(session, session.largest))

    def _search(self, session: Session, row: Row) -> Hits | None:
        parts = [
            [(split[task].classified, fuse(session, split[task])) for task in row.tasks]
            for split in self.splits
        ]
        # One object for both sides: a query is not its own answer.
        both = gather_classes(parts[0], parts[-1], self.duplicates)

        def find(some: range) -> tuple[np.ndarray]:
            found = hits(both, session.evaluator.device, TOP, some)
            return (found.reshape(-1, *found.shape[2:]),)

        with session.timed("search", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
            found = session.shared({"what": "hits", **row.fields}, len(both.class_Q), find)
        shape = 2, len(both.ends_M), -1, TOP
        return None if found is None else (both, found[0].reshape(shape))

    def embed(self, session: Session, tasks: Iterable[int]) -> None:
        """Fuse the samples of tasks, by their numbers."""
        for number in tasks:
            for split in self.splits:
                fuse(session, split[number])


def precisions(
    search: ClassSearch,
    found: np.ndarray,
    parts: int = 1,
    variant: str = average_precision.DEFAULT_VARIANT,
) -> dict[str, Any]:
    """Mean average precisions in percent in the gallery of the first parts.

    `n_ties` queries would score differently if they won their ties; `n_alone` have no right answer
    in the gallery and score 0.
    """
    right_Q, itself_Q = search.right_counts(parts)
    worst, best = (
        average_precision.RankedHits(one[parts - 1, : len(right_Q)], right_Q, itself_Q >= 0)
        for one in found
    )
    return {
        "metrics": average_precision.mean_average_precisions(worst, variant),
        "n_queries": len(right_Q),
        "n_gallery": int(search.ends_M[parts - 1]),
        "n_ties": average_precision.count_touched(worst, best, variant),
        "n_alone": int(np.count_nonzero(right_Q == 0)),
    }
