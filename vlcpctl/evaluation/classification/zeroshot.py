"""Zero-shot accuracy of checkpoints: embed the prompts once, then the images in one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.core.hashing import content_id
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.evaluation.classification.class_vectors import (
    class_ranks,
    class_vectors,
)
from vlcpctl.evaluation.classification.labelled_sets import LabelledSet
from vlcpctl.evaluation.classification.zeroshot_plan import ZeroshotData, ZeroshotPlan
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.embedding_cache import Cached, key_of
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.rank_files import Named, RankFile
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.evaluation.search.queries import ExactRanks
from vlcpctl.evaluation.session import Session
from vlcpctl.metrics.accuracy import accuracies, mean_accuracies, tally
from vlcpctl.metrics.recall import count_touched


@dataclass(frozen=True)
class ZeroshotResult:
    """The accuracies in percent over `n_images`; `n_ties` of these depend on how a tie counts."""

    metrics: dict[str, float]
    n_images: int
    n_ties: int
    n_skipped: int


@final
class ZeroshotEvaluator(Evaluator):
    """Accuracies on the data sets of a plan, and their averages."""

    def __init__(self, plan: ZeroshotPlan, compute: Compute) -> None:
        request = plan.request
        self.plan = plan
        self.sets = [LabelledSet(one.data, request.split, request.limit) for one in plan.data_sets]

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """See `Evaluator`; raises TooManySkipped if too many images cannot be read."""
        found = [self._result(session, number) for number in row.tasks]
        return dataclasses.asdict(found[0] if len(found) == 1 else _average(found))

    def _result(self, session: Session, number: int) -> ZeroshotResult:
        """The accuracies on one data set, computed once for its own row and for the average."""
        own = next(row for row in session.job.rows if row.tasks == (number,))
        return session.once(number, lambda: self._classify(session, own))

    def _classify(self, session: Session, row: PlannedRow) -> ZeroshotResult:
        """The accuracies on one data set, computed in one pass over its images."""
        (number,) = row.tasks
        given = self.plan.data_sets[number]
        class_KD = self._class_vectors(session, given)
        opened, classes = self.sets[number], len(given.prompts)
        file, device = self.plan.ranks, session.compute.device
        labels, flaws = opened.images.labels, list(opened.images.flaws)
        nothing = np.empty(0, dtype=np.int64)
        counts, n_ties = tally(nothing, nothing, classes), 0
        what = f"{session.checkpoint} on {opened.name}"
        for rows, image_BD, bad in opened.embed(session, what):
            flaws += bad
            candidate_B = given.candidates[labels[rows]]
            is_exact = file is not None
            found = class_ranks(image_BD, candidate_B, class_KD, device, is_exact=is_exact)
            if file is not None:
                self._save_ranks(file, row, rows, found.exact())
            ranks = found.ranks()
            counts += tally(ranks.worst, labels[rows], classes)
            n_ties += count_touched(ranks.worst, ranks.best)
        opened.check_flaws(flaws, self.plan.request.tolerance)
        metrics = accuracies(counts, len(class_KD))
        return ZeroshotResult(metrics, int(counts.images_C.sum()), n_ties, len(flaws))

    def _save_ranks(self, file: RankFile, row: PlannedRow, rows: Ids, exact: ExactRanks) -> None:
        """Add the ranks (B,) of the classes of the images in `rows` (B,)."""
        (number,) = row.tasks
        opened = self.sets[number]
        keys = pa.array([opened.images.key(place) for place in rows.tolist()], pa.string())
        classes = pa.array(distinct_labels(opened.data.classes), pa.string())
        labels = classes.take(pa.array(opened.images.labels[rows]))
        candidates = classes.take(pa.array(self.plan.data_sets[number].first_classes))
        file.add(row, "i2c", (Named(keys), Named(candidates)), exact, labels)

    def _class_vectors(self, session: Session, given: ZeroshotData) -> Vectors:
        """(K, D) the candidates, computed once: tasks of a stream often share them."""
        return session.once(given.digest, lambda: self._embed_classes(session, given))

    def _embed_classes(self, session: Session, given: ZeroshotData) -> Vectors:
        compute, what = session.compute, f"{session.checkpoint} on {given.data.name}"
        prompts = [given.prompts[place] for place in given.first_classes.tolist()]
        if compute.cache is None:
            return class_vectors(
                session.encoder, prompts, compute.batch_size, what, session.results
            )
        about = {"what": "classes", "prompts": content_id(prompts)}
        key = key_of(session.checkpoint, compute.device, compute.batch_size, about)
        found = compute.cache.get(key)
        if found is not None:
            return found.embeddings
        vectors = class_vectors(session.encoder, prompts, compute.batch_size, what, session.results)
        compute.cache.put(key, Cached(vectors, ()))
        return vectors


def _average(several: Sequence[ZeroshotResult]) -> ZeroshotResult:
    return ZeroshotResult(
        metrics=mean_accuracies([one.metrics for one in several]),
        n_images=sum(one.n_images for one in several),
        n_ties=sum(one.n_ties for one in several),
        n_skipped=sum(one.n_skipped for one in several),
    )
