"""Zero-shot accuracy of checkpoints: the prompts become classes, the images are read once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.console import progress, warn
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import BadInput, TooManySkipped
from vlcpctl.data.labelled_batches import LabelledBatches, read_labelled
from vlcpctl.data.labelled_images import Flaw, LabelledImages
from vlcpctl.data.skips import Tolerance
from vlcpctl.engine.class_vectors import class_vectors
from vlcpctl.engine.zeroshot_plan import Request, Subject, ZeroshotPlan
from vlcpctl.eval.retrieval import require_finite
from vlcpctl.eval.search import Ids, Vectors
from vlcpctl.eval.torch_search import TorchIndex
from vlcpctl.eval.zeroshot import class_ranks
from vlcpctl.metrics.accuracy import accuracies, mean_accuracies, tally
from vlcpctl.metrics.recall import count_touched
from vlcpctl.models import encoders
from vlcpctl.models.embed import embed_images
from vlcpctl.models.encoders import Encoder

_FLAWS_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Means:
    """How the work is done, and how many images may be left out; rows depend on none of it."""

    device: str
    batch_size: int
    workers: int
    tolerance: Tolerance


@dataclass(frozen=True)
class Measured:
    """The accuracies in percent of `n_images`; `n_ties` of them hang on a tie."""

    metrics: dict[str, float]
    n_images: int
    n_ties: int
    n_skipped: int


def evaluate(request: Request, plan: ZeroshotPlan, means: Means) -> Iterator[dict[str, Any]]:
    """The rows, each as soon as it is known."""
    opened = [_Opened(subject, request) for subject in plan.subjects]
    for job in plan.jobs:
        model = _Model(job.checkpoint, means)
        found: dict[int, Measured] = {}
        for cell in job.cells:
            if len(cell.tasks) == 1:
                (number,) = cell.tasks
                measured = found[number] = model.measured(opened[number])
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


class _Opened:
    """A data set whose images have been found."""

    def __init__(self, subject: Subject, request: Request) -> None:
        self.subject, self.split, self.limit = subject, request.split, request.limit
        self.has_told = False

    @property
    def name(self) -> str:
        return self.subject.data.name

    @cached_property
    def images(self) -> LabelledImages:
        return self.subject.data.images(self.split)

    @cached_property
    def count(self) -> int:
        return min(len(self.images.labels), self.limit or len(self.images.labels))

    def judge(self, flaws: Sequence[Flaw], tolerance: Tolerance) -> None:
        """Name what was left out, once for all checkpoints; too much of it is an error."""
        total = self.count + len(self.images.flaws)
        named = "; ".join(f"{flaw.name}: {flaw.why}" for flaw in flaws[:_FLAWS_SHOWN])
        more = f"; and {len(flaws) - _FLAWS_SHOWN} more" if len(flaws) > _FLAWS_SHOWN else ""
        if not tolerance.allows(len(flaws), total):
            raise TooManySkipped(
                f"{self.name}: {len(flaws)} of {total} images cannot be used, more than "
                f"--max-skip {tolerance.text}: {named}{more}"
            )
        if flaws and not self.has_told:
            warn(f"{self.name}: left out {len(flaws)} of {total} images: {named}{more}")
        if len(flaws) == total:
            raise BadInput(f"{self.name}: there is no image to measure on")
        self.has_told = True


class _Model:
    """A checkpoint, and the classes as it sees them."""

    def __init__(self, checkpoint: Path, means: Means) -> None:
        self.checkpoint, self.means = checkpoint, means
        self._classes: tuple[str, Vectors] | None = None  # tasks of a stream often share them

    @cached_property
    def encoder(self) -> Encoder:
        encoder = encoders.load(self.checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return encoder

    def measured(self, opened: _Opened) -> Measured:
        """The accuracies on a data set, in one pass over its images."""
        class_CD = self._class_vectors(opened.subject)
        index = TorchIndex(class_CD, self.means.device)
        labels, flaws = opened.images.labels, list(opened.images.flaws)
        nothing = np.empty(0, dtype=np.int64)
        counts, n_ties = tally(nothing, nothing, len(class_CD)), 0
        for rows, image_BD, bad in self._embedded(opened):
            flaws += bad
            ranks = class_ranks(image_BD, labels[rows], class_CD, index)
            counts += tally(ranks.worst, labels[rows], len(class_CD))
            n_ties += count_touched(ranks.worst, ranks.best)
        opened.judge(flaws, self.means.tolerance)
        return Measured(accuracies(counts), int(counts.images_C.sum()), n_ties, len(flaws))

    def _embedded(self, opened: _Opened) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        view, size = self.encoder.view, self.means.batch_size
        batches = LabelledBatches(opened.images, opened.count, view, size)
        what = f"{self.checkpoint} on {opened.name}"
        with progress(f"{what}: images", opened.count, "images") as bar:
            for batch in read_labelled(batches, self.means.workers):
                image_BD = embed_images(self.encoder, [batch.pixels] if len(batch.rows) else [])
                require_finite(image_BD, f"{what}, images")
                yield batch.rows, image_BD, batch.flaws
                bar.advance(batch.size)

    def _class_vectors(self, subject: Subject) -> Vectors:
        if self._classes is None or self._classes[0] != subject.digest:
            what = f"{self.checkpoint} on {subject.data.name}"
            class_CD = class_vectors(self.encoder, subject.prompts, self.means.batch_size, what)
            self._classes = (subject.digest, class_CD)
        return self._classes[1]
