"""Zero-shot accuracy of checkpoints: embed the prompts once, then the images in one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.devices import torch_device
from vlcpctl.evaluation.classification.class_vectors import class_ranks, class_vectors
from vlcpctl.evaluation.classification.labelled_sets import LabelledSet
from vlcpctl.evaluation.classification.zeroshot_plan import Request, Subject, ZeroshotPlan
from vlcpctl.evaluation.jobs import ClassificationCompute
from vlcpctl.evaluation.search.index import Vectors
from vlcpctl.evaluation.search.torch_index import TorchIndex
from vlcpctl.metrics.accuracy import accuracies, mean_accuracies, tally
from vlcpctl.metrics.recall import count_touched
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder


@dataclass(frozen=True)
class Measured:
    """The accuracies in percent over `n_images`; `n_ties` of these depend on how a tie counts."""

    metrics: dict[str, float]
    n_images: int
    n_ties: int
    n_skipped: int


def evaluate(
    request: Request, plan: ZeroshotPlan, means: ClassificationCompute
) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured.

    Raises Diverged for non-finite embeddings, and TooManySkipped if too many images cannot be read.
    """
    sets = [LabelledSet(one.data, request.split, request.limit) for one in plan.subjects]
    for job in plan.jobs:
        model = _Model(job.checkpoint, means)
        found: dict[int, Measured] = {}
        for cell in job.cells:
            if len(cell.tasks) == 1:
                (number,) = cell.tasks
                measured = found[number] = model.measured(plan.subjects[number], sets[number])
            else:
                measured = _average([found[number] for number in cell.tasks])
            yield cell.row(dataclasses.asdict(measured))


def _average(several: Sequence[Measured]) -> Measured:
    return Measured(
        metrics=mean_accuracies([one.metrics for one in several]),
        n_images=sum(one.n_images for one in several),
        n_ties=sum(one.n_ties for one in several),
        n_skipped=sum(one.n_skipped for one in several),
    )


class _Model:
    """A checkpoint, and its embeddings of the classes."""

    def __init__(self, checkpoint: Path, means: ClassificationCompute) -> None:
        self.checkpoint, self.means = checkpoint, means
        self._classes: tuple[str, Vectors] | None = None  # tasks of a stream often share them

    @cached_property
    def encoder(self) -> Encoder:
        encoder = encoders.load(self.checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return encoder

    def measured(self, subject: Subject, opened: LabelledSet) -> Measured:
        """The accuracies on a data set, computed in one pass over its images."""
        class_CD = self._class_vectors(subject)
        index = TorchIndex(class_CD, self.means.device)
        labels, flaws = opened.images.labels, list(opened.images.flaws)
        nothing = np.empty(0, dtype=np.int64)
        counts, n_ties = tally(nothing, nothing, len(class_CD)), 0
        what, means = f"{self.checkpoint} on {opened.name}", self.means
        batches = opened.embedded(self.encoder, means.batch_size, means.workers, what)
        for rows, image_BD, bad in batches:
            flaws += bad
            ranks = class_ranks(image_BD, labels[rows], class_CD, index)
            counts += tally(ranks.worst, labels[rows], len(class_CD))
            n_ties += count_touched(ranks.worst, ranks.best)
        opened.judge(flaws, self.means.tolerance)
        return Measured(accuracies(counts), int(counts.images_C.sum()), n_ties, len(flaws))

    def _class_vectors(self, subject: Subject) -> Vectors:
        if self._classes is None or self._classes[0] != subject.digest:
            what = f"{self.checkpoint} on {subject.data.name}"
            class_CD = class_vectors(self.encoder, subject.prompts, self.means.batch_size, what)
            self._classes = (subject.digest, class_CD)
        return self._classes[1]
