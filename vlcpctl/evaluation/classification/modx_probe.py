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

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from vlcpctl.core.console import progress
from vlcpctl.core.devices import to_device, torch_device
from vlcpctl.core.errors import Diverged
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.classification.labelled_images import Flaw
from vlcpctl.data.loading.eval_batches import AugmentedBatches
from vlcpctl.evaluation.classification.labelled_sets import LabelledSet, Way, parts_of
from vlcpctl.evaluation.classification.linear_probe import Probe, judged, number_of
from vlcpctl.evaluation.classification.probe import MODX_BATCH
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.vectors import Ids, Vectors
from vlcpctl.models.embed import autocast, require_finite
from vlcpctl.models.encoders import Encoder

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.probe import LinearProbe

# The shorter side of a test image is resized to 256 pixels, of which the centre of 224 is cut out.
_RESIZED, _CROPPED = 256, 224
_CROP_SCALE = (0.08, 1.0)  # share of the area of a random resized crop: torchvision's default
# Channel statistics of ImageNet, whatever those that the model was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-6
_FIRST_STD = 0.01  # of the weights at the start; the biases start at 0


def measured(
    session: Session, how: LinearProbe, train_set: LabelledSet, test_set: LabelledSet
) -> dict[str, Any]:
    """Train a probe on one split of a data set, and measure its best epoch on the other.

    Raises Diverged if features or a probe are not finite, BadInput if images or classes are too
    few, and TooManySkipped if too many images cannot be read.
    """
    what = f"{session.checkpoint} on {train_set.name}"
    label_N = train_set.images.labels[: train_set.count]
    # Classes without a training image get no weights, as in the other probe.
    place_C = number_of(label_N, len(train_set.data.classes), what)
    test = test_set.embedded(session, how.tolerance, TEST)
    best, acc1, skipped = None, 0.0, 0
    for epoch, (probe, flaws) in enumerate(_epochs(session, how, train_set, place_C), 1):
        if not probe.is_finite:
            raise Diverged(
                f"{what}: the probe diverged to NaN or infinity in epoch {epoch}; use a smaller "
                "--lr"
            )
        if epoch == 1:
            train_set.check_flaws(flaws, how.tolerance)
            skipped = len(flaws)
        found = judged(probe, test, place_C)
        acc1 = found["metrics"]["acc1"]
        if best is None or acc1 > best["metrics"]["acc1"]:  # of equal ones the first
            best = {**found, "best_epoch": epoch}
    assert best is not None
    total = train_set.count + len(train_set.images.flaws)
    counts = {"n_train": total - skipped, "n_skipped": skipped + test.skipped}
    return {**best, **counts, "last_acc1": acc1}


def _epochs(
    session: Session, how: LinearProbe, train_set: LabelledSet, place_C: Ids
) -> Iterator[tuple[Probe, list[Flaw]]]:
    """The probe after each epoch, and the flaws of all images that the epoch left out."""
    evaluator, encoder = session.evaluator, session.encoder
    device, count = torch_device(evaluator.device), train_set.count
    batches = AugmentedBatches(
        *(train_set.images, count, train_view(encoder.transform), evaluator.batch_size),
        *(how.epoch_count, how.seed),
    )
    # One stream of all epochs, so that workers start once.
    work = partial(parts_of, batches, evaluator.worker_count, TEST)
    parts = session.results(work, range(len(batches)))
    label_N = torch.from_numpy(place_C[train_set.images.labels[:count]]).to(device)
    shape = int(place_C.max()) + 1, encoder.width
    drawn_CD = generator(how.seed, "probe", "weights").normal(0.0, _FIRST_STD, shape)
    weight_CD = torch.from_numpy(drawn_CD).to(device).requires_grad_()
    bias_C = torch.zeros_like(weight_CD[:, 0]).requires_grad_()
    # The decay takes hold of the biases, too.
    optimizer = torch.optim.SGD(
        [weight_CD, bias_C], lr=how.rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.epoch_count)
    what, steps = f"{session.checkpoint} on {train_set.name}", 0
    with progress(f"{what}: images", how.epoch_count * count, "images") as bar:

        def read(flaws: list[Flaw]) -> Iterator[tuple[Tensor, Tensor]]:
            for rows, feature_BD, bad in islice(parts, batches.per_epoch):
                require_finite(feature_BD, f"{what}, images")
                flaws += bad
                bar.advance(len(rows) + len(bad))
                features = torch.from_numpy(feature_BD).to(device, copy=True)
                yield features, label_N[torch.from_numpy(np.asarray(rows)).to(device)]

        for _ in range(how.epoch_count):
            flaws = list(train_set.images.flaws)
            for feature_BD, label_B in full_batches(read(flaws), MODX_BATCH):
                optimizer.zero_grad()
                cross_entropy(linear(feature_BD.double(), weight_CD, bias_C), label_B).backward()
                optimizer.step()
                steps += 1
            schedule.step()  # lowers the rate for the next epoch
            yield Probe(weight_CD.detach().clone(), bias_C.detach().clone(), steps), flaws
    next(parts, None)  # lets the processes end what they have started


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
    """The image at 256 / 224 of the model's image size; `raw_features` cuts out its centre."""
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


@torch.inference_mode()
def raw_features(encoder: Encoder, images: Tensor) -> Vectors:
    """(B, D) features of images: the encoder's projections as they are, not of unit length.

    Of images larger than the model takes, the centre is cut out.
    """
    if not len(images):
        return torch.empty(0, encoder.width).numpy()
    encoder.module.eval()
    own = encoder.transform.image_size
    edge = round((images.shape[1] - own) / 2)
    cut = images[:, edge : edge + own, edge : edge + own]
    like = next(encoder.module.parameters())
    mean_C, std_C = to_device(torch.tensor((_MEAN, _STD), dtype=torch.float64), like.device).to(
        like.dtype
    )
    scaled = to_device(cut, like.device).to(like.dtype) / 255
    pixels = scaled.sub(mean_C).div(std_C).permute(0, 3, 1, 2)
    with autocast(encoder):
        features, _ = encoder.features(pixels, None)
    assert features is not None
    found: Vectors = features.float().cpu().numpy()
    return found


TEST = Way("images of Mod-X's probe", test_view, raw_features)
