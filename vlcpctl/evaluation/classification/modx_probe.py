"""The linear probe of Mod-X's authors: SGD on augmented images, and the best epoch on the test.

The images are embedded again in each epoch, because their views differ. So the number is
comparable with the authors', and optimistic: the split that it is of also chooses the epoch.
Shapes: C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.console import Progress, progress, say
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.data.classification.labelled_images import Flaw
from vlcpctl.data.loading.eval_batches import AugmentedBatches
from vlcpctl.evaluation.classification.labelled_sets import LabelledSet
from vlcpctl.evaluation.classification.linear_probe import Probe, number_of
from vlcpctl.evaluation.classification.modx_training import LinearLayer, Settings, full_batches
from vlcpctl.evaluation.classification.modx_views import TEST, RawWork, train_view
from vlcpctl.evaluation.classification.probe_images import Images, images_of, judged
from vlcpctl.evaluation.classification.probe_plan import (
    MODX_BATCH,
    MODX_EPOCHS,
    MODX_RATE,
    ProbePlan,
)
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.evaluation.session import Session
from vlcpctl.models.embed import require_finite

_Part = tuple[Ids, Vectors, list[Flaw]]


@dataclass(frozen=True)
class BestEpoch:
    """The most accurate of the epochs so far, counted from 1, and its probe."""

    epoch: int
    acc1: float
    probe: Probe


@final
class ModxEvaluator(Evaluator):
    """Accuracies of the probes of Mod-X's authors on the image features of checkpoints."""

    def __init__(self, plan: ProbePlan, compute: Compute) -> None:
        request = self.request = plan.request
        self.settings = Settings(
            epochs=request.epochs or MODX_EPOCHS,
            rate=request.lr or MODX_RATE,
            batch=MODX_BATCH,
            seed=request.seed,
        )
        splits = (request.train_split, request.split)
        self.sets = [
            [LabelledSet(data, split, request.limit) for split in splits] for data in plan.data_sets
        ]
        self.device = torch_device(compute.device)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """Train a probe on one split of a data set, and measure its best epoch on the other.

        Raises Diverged if features or a probe are not finite, BadInput if images or classes are too
        few, and TooManySkipped if too many images cannot be read.
        """
        (number,) = row.tasks
        train_set, test_set = self.sets[number]
        training = _Training(self, session, train_set)
        test = images_of(session, test_set, self.request.tolerance, TEST)
        best, last = training.best(test)
        say(
            f"{training.what}: {best.acc1:.2f} % at epoch {best.epoch} of {self.settings.epochs}, "
            f"chosen on split {test_set.split}; {last:.2f} % at the last one"
        )
        found = judged(best.probe, test, training.place_C)
        return {
            **found.fields(),
            "n_train": training.used,
            "n_skipped": training.skipped + test.skipped,
            "best_epoch": best.epoch,
            "last_acc1": last,
        }


class _Training:
    """The training of a probe on the images of a split, with a checkpoint."""

    def __init__(self, evaluator: ModxEvaluator, session: Session, train_set: LabelledSet) -> None:
        self.settings, self.device = evaluator.settings, evaluator.device
        self.tolerance = evaluator.request.tolerance
        self.session, self.set = session, train_set
        self.what = f"{session.checkpoint} on {train_set.name}"
        label_N = train_set.images.labels[: train_set.count]
        # Classes without a training image get no weights, as in the other probe.
        self.place_C = number_of(label_N, len(train_set.data.classes))
        if self.place_C.max() < 1:
            raise BadInput(
                f"{self.what}: all training images have one class; a probe needs two or more"
            )
        self.label_N = torch.from_numpy(self.place_C[label_N]).to(self.device)
        self.used = self.skipped = 0  # images, known after the first epoch

    def best(self, test: Images) -> tuple[BestEpoch, float]:
        """The epoch with the best accuracy on `test`, the first of ties, and that of the last one.

        Raises Diverged if the features or the weights are not finite.
        """
        compute, settings = self.session.compute, self.settings
        view, size = train_view(self.session.encoder.transform), compute.batch_size
        batches = AugmentedBatches(
            *(self.set.images, self.set.count, view, size, settings.epochs, settings.seed)
        )
        # One stream of all epochs, so that workers start once.
        parts = self.session.results(RawWork(batches, compute.worker_count), len(batches))
        classes, width = int(self.place_C.max()) + 1, self.session.encoder.width
        layer = LinearLayer(classes, width, settings, self.device)
        best, acc1 = None, 0.0
        with progress(f"{self.what}: images", settings.epochs * self.set.count, "images") as bar:
            for epoch in range(1, settings.epochs + 1):
                self._learn(layer, islice(parts, batches.per_epoch), epoch, bar)
                probe = layer.probe
                if not probe.is_finite:
                    raise Diverged(
                        f"{self.what}: the probe diverged to NaN or infinity in epoch {epoch}; "
                        "use a smaller --lr"
                    )
                acc1 = judged(probe, test, self.place_C).metrics["acc1"]
                if best is None or acc1 > best.acc1:
                    best = BestEpoch(epoch, acc1, probe)
        next(parts, None)  # lets the processes end what they have started
        assert best is not None
        return best, acc1

    def _learn(self, layer: LinearLayer, parts: Iterator[_Part], epoch: int, bar: Progress) -> None:
        """Train on the batches of an epoch."""
        flaws = list(self.set.images.flaws)
        read = self._read(parts, flaws, bar)
        for feature_BD, label_B in full_batches(read, self.settings.batch):
            layer.learn(feature_BD, label_B)
        layer.end_epoch()
        if epoch == 1:
            self.set.check_flaws(flaws, self.tolerance)
            total = self.set.count + len(self.set.images.flaws)
            self.skipped, self.used = len(flaws), total - len(flaws)

    def _read(
        self, parts: Iterator[_Part], flaws: list[Flaw], bar: Progress
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels of an epoch; `flaws` gets those of images that cannot be decoded."""
        for rows, feature_BD, bad in parts:
            require_finite(feature_BD, f"{self.what}, images")
            flaws += bad
            bar.advance(len(rows) + len(bad))
            yield (
                torch.from_numpy(feature_BD).to(self.device, copy=True),
                self.label_N[torch.from_numpy(np.asarray(rows)).to(self.device)],
            )
