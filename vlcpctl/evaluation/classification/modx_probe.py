"""The linear probe of Mod-X's authors: SGD on augmented images, and the best epoch on the test.

How images are seen and a layer is trained is that of their released program
(linear_evaluation_ddp/evaluate_clip.py); the paper (Ni et al., ICML 2023, Section A.3) says only
that a linear layer is trained behind the fixed image encoder. Ours are double precision, and the
order and the first weights, which are drawn from the seed. The images are embedded again in each
epoch, because their views differ. So the number is comparable with the authors', and optimistic:
the split that it is of also chooses the epoch.
Shapes: B images of H x W pixels, C classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vlcpctl.core.console import Progress, progress, say
from vlcpctl.core.devices import copied_ahead, to_device, torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.classification.labelled_images import Flaw
from vlcpctl.data.loading.eval_batches import (
    AugmentedBatches,
    LabelledBatch,
    LabelledBatches,
    read_labelled,
)
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.classification.labelled_sets import Images, LabelledSet, Way
from vlcpctl.evaluation.classification.linear_probe import Probe, Sgd, judged, number_of
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.index import Ids, Vectors
from vlcpctl.models.embed import require_finite
from vlcpctl.models.encoders import Encoder

# The shorter side of a test image is resized to 256 pixels, of which the centre of 224 is cut out.
_RESIZED, _CROPPED = 256, 224
_CROP_SCALE = (0.08, 1.0)  # share of the area of a random resized crop: torchvision's default
# Channel statistics of ImageNet, whatever those that the model was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-6
_FIRST_STD = 0.01  # of the weights at the start; the biases start at 0

_Part = tuple[Ids, Vectors, list[Flaw]]


def measured(
    session: Session,
    settings: Sgd,
    train_set: LabelledSet,
    test_set: LabelledSet,
    tolerance: Tolerance,
) -> dict[str, Any]:
    """Train a probe on one split of a data set, and measure its best epoch on the other.

    Raises Diverged if features or a probe are not finite, BadInput if images or classes are too
    few, and TooManySkipped if more images than `tolerance` cannot be read.
    """
    training = _Training(session, settings, train_set, tolerance)
    test = test_set.images_by(session, tolerance, TEST)
    best, last = training.best(test)
    say(
        f"{training.what}: {best.acc1:.2f} % at epoch {best.epoch} of {settings.epochs}, "
        f"chosen on split {test_set.split}; {last:.2f} % at the last one"
    )
    return {
        **vars(judged(best.probe, test, training.place_C)),
        "n_train": training.used,
        "n_skipped": training.skipped + test.skipped,
        "best_epoch": best.epoch,
        "last_acc1": last,
    }


@dataclass(frozen=True)
class BestEpoch:
    """The most accurate of the epochs so far, counted from 1, and its probe."""

    epoch: int
    acc1: float
    probe: Probe


class _Training:
    """The training of a probe on the images of a split, with a checkpoint."""

    def __init__(
        self, session: Session, settings: Sgd, train_set: LabelledSet, tolerance: Tolerance
    ) -> None:
        self.session, self.settings = session, settings
        self.set, self.tolerance = train_set, tolerance
        self.device = torch_device(session.compute.device)
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
        parts = self.session.results(RawWork(batches, compute.worker_count), range(len(batches)))
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


class LinearLayer:
    """A linear layer in training, on a device."""

    def __init__(self, classes: int, width: int, settings: Sgd, device: torch.device) -> None:
        draw = generator(settings.seed, "probe", "weights")
        drawn_CD = torch.from_numpy(draw.normal(0.0, _FIRST_STD, (classes, width)))
        self.weight_CD = drawn_CD.to(device).requires_grad_()
        self.bias_C = torch.zeros_like(self.weight_CD[:, 0]).requires_grad_()
        # The decay takes hold of the biases, too.
        self.optimizer = torch.optim.SGD(
            [self.weight_CD, self.bias_C],
            lr=settings.rate,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, settings.epochs)
        self.steps = 0

    def learn(self, feature_BD: Tensor, label_B: Tensor) -> None:
        """Take a step on the mean cross-entropy of a batch of features of any precision."""
        logit_BC = torch.nn.functional.linear(feature_BD.double(), self.weight_CD, self.bias_C)
        self.optimizer.zero_grad()
        cross_entropy(logit_BC, label_B).backward()
        self.optimizer.step()
        self.steps += 1

    def end_epoch(self) -> None:
        """Lower the rate for the next epoch."""
        self.schedule.step()

    @property
    def probe(self) -> Probe:
        """The layer as it is now; later steps do not change it."""
        return Probe(self.weight_CD.detach().clone(), self.bias_C.detach().clone(), self.steps)


def full_batches(
    parts: Iterable[tuple[Tensor, Tensor]], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features (size, D) and labels (size,) of an epoch, from parts with any number of images.

    What is left at the end is dropped, unless the epoch has no full batch at all.
    """
    features: list[Tensor] = []
    labels: list[Tensor] = []
    waiting, is_full = 0, False
    for feature_BD, label_B in parts:
        features.append(feature_BD)
        labels.append(label_B)
        waiting += len(label_B)
        if waiting < size:
            continue
        is_full, all_ND, all_N = True, torch.cat(features), torch.cat(labels)
        whole = waiting - waiting % size
        # Copied: the last bits of products may depend on the address of what is multiplied.
        for start in range(0, whole, size):
            end = start + size
            yield all_ND[start:end].clone(), all_N[start:end].clone()
        features, labels, waiting = [all_ND[whole:]], [all_N[whole:]], waiting - whole
    if waiting and not is_full:
        yield torch.cat(features), torch.cat(labels)


def train_view(own: ImageTransform) -> ImageTransform:
    """A random resized crop of the model's image size, flipped half of the time."""
    return replace(_common(own), crop="random", crop_scale=_CROP_SCALE, flip=True)


def test_view(own: ImageTransform) -> ImageTransform:
    """The image at 256 / 224 of the model's image size; `RawWork` cuts out its centre."""
    return replace(_common(own), image_size=round(own.image_size * _RESIZED / _CROPPED))


def _common(own: ImageTransform) -> ImageTransform:
    return replace(
        own,
        mean=_MEAN,
        std=_STD,
        interpolation="bilinear",
        resize_mode="shortest",
        crop="center",
        flip=False,
        randaugment=None,
        jpeg_decode=EXACT,
    )


@dataclass(frozen=True)
class RawWork:
    """Work that embeds batches of labelled images: rows (B,), features (B, D) and flaws.

    The features are the projections of the image encoder as they are, not of unit length.
    """

    batches: LabelledBatches | AugmentedBatches
    workers: int

    def share(self, numbers: Sequence[int]) -> RawWork:
        """See `Work`."""
        return self

    def results(
        self, encoder: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[Ids, Vectors, list[Flaw]]]:
        """See `Work`."""
        encoder.module.eval()
        pins = encoder.device.type == "cuda"
        read = read_labelled(self.batches, self.workers, numbers, pins=pins)
        for batch in copied_ahead(read, encoder.device, LabelledBatch.moved):
            yield batch.rows, self._features(encoder, batch.pixels), batch.flaws

    @torch.inference_mode()
    def _features(self, encoder: Encoder, images: Tensor) -> Vectors:
        if not len(images):
            return torch.empty(0, encoder.width).numpy()
        own = encoder.transform.image_size
        edge = round((images.shape[1] - own) / 2)
        cut = images[:, edge : edge + own, edge : edge + own]
        view = self.batches.transform
        pixels = normalised(cut, view.mean, view.std, next(encoder.module.parameters()))
        features, _ = encoder.features(pixels, None)
        assert features is not None
        found: Vectors = features.float().cpu().numpy()
        return found


def normalised(images: Tensor, mean: Sequence[float], std: Sequence[float], like: Tensor) -> Tensor:
    """Pixels (B, 3, H, W) of bytes (B, H, W, 3), normalised by channel, on the device of `like`."""
    statistics = torch.tensor((mean, std), dtype=torch.float64)
    mean_C, std_C = to_device(statistics, like.device).to(like.dtype)
    scaled = to_device(images, like.device).to(like.dtype) / 255
    return scaled.sub(mean_C).div(std_C).permute(0, 3, 1, 2)


TEST = Way("images of Mod-X's probe", test_view, RawWork)
