"""Linear probes on image features: logistic regression, and the probe of Mod-X's authors.

The first minimises the mean cross-entropy plus strength / 2 times the squared weights; biases are
not penalised. With N images, that is scikit-learn's LogisticRegression(C = 1 / (strength * N)). The
strength is given, or chosen on a held-out part of the training images.

The second is trained by SGD on augmented images, and its best epoch on the test is its score. How
images are seen and a layer is trained is that of their released program
(linear_evaluation_ddp/evaluate_clip.py); the paper (Ni et al., ICML 2023, Section A.3) says only
that a linear layer is trained behind the fixed image encoder. Ours are double precision, and the
order and the first weights, which are drawn from the seed. The images are embedded again in each
epoch, because their views differ. So the number is comparable with the authors', and optimistic:
the split that it is of also chooses the epoch.
Shapes: N images, B of them at once, of H x W pixels, C classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from vlcpctl.core.console import progress, warn
from vlcpctl.core.devices import to_device, torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.core.seeds import generator
from vlcpctl.core.transform import EXACT, ImageTransform
from vlcpctl.data.classification.labelled_images import Flaw
from vlcpctl.data.loading.eval_batches import AugmentedBatches
from vlcpctl.evaluation.classification.labelled_sets import Images, LabelledSet, Way, parts_of
from vlcpctl.evaluation.classification.probe import MODX_BATCH
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.count import BAND
from vlcpctl.evaluation.search.vectors import Ids, Vectors
from vlcpctl.files.ids import unit_hash
from vlcpctl.metrics.accuracy import accuracies, tally
from vlcpctl.metrics.recall import count_touched
from vlcpctl.models.embed import autocast, require_finite
from vlcpctl.models.encoders import Encoder

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.probe import LinearProbe

# Largest component of the gradient when L-BFGS stops: to choose a strength, as small as single
# precision allows (rounding stops the line search near 1e-7), and for the probe that is evaluated.
LOOSE, TIGHT = 1e-6, 1e-8
MOST_STEPS = 1000  # of L-BFGS, as in CLIP's linear probes (Radford et al., 2021, appendix A.3)
STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
FALLS = 2  # strengths in a row with less accuracy than the best, after which the choice is made
_CHUNK = 1 << 14  # images converted to double precision at once
# The shorter side of a test image is resized to 256 pixels, of which the centre of 224 is cut out.
_RESIZED, _CROPPED = 256, 224
_CROP_SCALE = (0.08, 1.0)  # share of the area of a random resized crop: torchvision's default
# Channel statistics of ImageNet, whatever those that the model was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-6
_FIRST_STD = 0.01  # of the weights at the start; the biases start at 0

Parameters = NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """A linear classifier, and the number of optimizer steps that fitted it."""

    weight_CD: Tensor  # double precision
    bias_C: Tensor
    steps: int = 0

    def logits(self, feature_BD: Tensor) -> Tensor:
        """(B, C) logits of features (B, D), in double precision."""
        return linear(feature_BD.double(), self.weight_CD, self.bias_C)

    @property
    def is_finite(self) -> bool:
        """Whether all weights are finite: a fit that diverged leaves NaN or infinity."""
        return all(bool(torch.isfinite(one).all()) for one in (self.weight_CD, self.bias_C))


@dataclass(frozen=True)
class LabelledFeatures:
    """Features (N, D) of images and their class numbers (N,)."""

    feature_ND: Tensor
    label_N: Tensor
    classes: int

    def at(self, rows: Tensor) -> LabelledFeatures:
        """The images in these rows."""
        return LabelledFeatures(self.feature_ND[rows], self.label_N[rows], self.classes)


def fitted(
    data: LabelledFeatures,
    strength: float,
    start: Probe | None = None,
    tolerance: float = TIGHT,
) -> Probe:
    """The probe that L-BFGS finds; the loss is convex, so `start` changes only the time it takes.

    It is fitted until no component of the gradient exceeds `tolerance`: with products in single
    precision as far as `LOOSE`, and in double precision from there.
    """
    vector = np.zeros((data.classes, data.feature_ND.shape[1] + 1))
    if start is not None:
        vector[:, :-1], vector[:, -1] = start.weight_CD.cpu(), start.bias_C.cpu()
    steps = 0
    for kind, gtol in ((torch.float32, max(tolerance, LOOSE)), (torch.float64, tolerance)):
        if kind == torch.float32 or (gtol < LOOSE and steps < MOST_STEPS):
            most = {"maxiter": MOST_STEPS - steps, "maxfun": 2 * MOST_STEPS}
            found = minimize(
                _loss,
                vector.ravel(),
                (data, strength, kind),
                jac=True,
                method="L-BFGS-B",
                options={**most, "gtol": gtol, "ftol": 0.0},
            )
            vector, steps = found.x.reshape(vector.shape), steps + int(found.nit)
    weight = torch.from_numpy(vector).to(data.feature_ND.device)
    return Probe(weight[:, :-1].contiguous(), weight[:, -1].contiguous(), steps)


@torch.inference_mode()
def _loss(
    flat: Parameters, data: LabelledFeatures, strength: float, kind: torch.dtype
) -> tuple[float, Parameters]:
    """The loss and its gradient at parameters (C, D + 1), flat, the last column being the biases.

    The products with features are computed in the precision `kind`, all sums and the parameters in
    double precision.
    """
    weight = torch.from_numpy(flat.reshape(data.classes, -1)).to(data.feature_ND.device)
    total = weight.new_zeros(())
    gradient = torch.zeros_like(weight)
    matrix_CD, bias_C = weight[:, :-1].to(kind), weight[:, -1].to(kind)
    for part in _chunks(data):
        feature_BD, label_B1 = part.feature_ND.to(kind), part.label_N[:, None]
        logit_BC = torch.addmm(bias_C, feature_BD, matrix_CD.T)
        logit_BC -= logit_BC.amax(dim=1, keepdim=True)
        own_B1 = logit_BC.gather(1, label_B1)
        sum_B1 = logit_BC.exp_().sum(dim=1, keepdim=True)
        total += (sum_B1.log() - own_B1).sum(dtype=torch.float64)
        # The gradient with respect to the logits: the probabilities less 1 of the own class.
        logit_BC /= sum_B1
        logit_BC.scatter_add_(1, label_B1, logit_BC.new_full(label_B1.shape, -1.0))
        gradient[:, :-1] += logit_BC.T @ feature_BD
        gradient[:, -1] += logit_BC.sum(dim=0)
    gradient /= len(data.label_N)
    gradient[:, :-1] += strength * weight[:, :-1]
    penalty = strength / 2 * weight[:, :-1].square().sum()
    return float(total / len(data.label_N) + penalty), gradient.cpu().numpy().ravel()


@torch.inference_mode()
def probe_ranks(probe: Probe, data: LabelledFeatures) -> tuple[Ids, Ids]:
    """(N,) rank of each image's class, from 1: at worst (it loses its ties) and at best."""
    worst, best = [], []
    for part in _chunks(data):
        logit_BC = probe.logits(part.feature_ND)
        own_B1 = logit_BC.gather(1, part.label_N[:, None])
        # Negated, so that NaN outranks the class; the count includes the class itself.
        worst.append((~(logit_BC < own_B1 - BAND)).sum(1))
        best.append((logit_BC >= own_B1 + BAND).sum(1) + 1)
    return torch.cat(worst).cpu().numpy(), torch.cat(best).cpu().numpy()


def accuracy(probe: Probe, data: LabelledFeatures) -> float:
    """Percent of the images whose class ranks first; a tie is never a hit."""
    return 100 * float(np.mean(probe_ranks(probe, data)[0] == 1))


def judged(probe: Probe, test: Images, place_C: Ids) -> dict[str, Any]:
    """The fields of a row that a probe achieves on a split.

    An image whose class has no weights (-1 in `place_C`) is wrong.
    """
    place_N, count = place_C[test.label_N], len(place_C)
    (seen,) = np.nonzero(place_N >= 0)
    data = _on_device(test, seen, place_C, probe.weight_CD.device)
    worst, best = probe_ranks(probe, data)
    rank_N = np.full(len(place_N), count + 1)  # unseen classes rank last: never a hit
    rank_N[seen] = worst
    return {
        "metrics": accuracies(tally(rank_N, test.label_N, count)),
        "n_images": len(place_N),
        "n_unseen": len(place_N) - len(seen),
        "n_ties": count_touched(worst, best),
    }


def _on_device(
    images: Images, rows: Ids | slice, place_C: Ids, device: torch.device
) -> LabelledFeatures:
    """Some images on a device; `place_C` numbers the classes that have weights."""
    return LabelledFeatures(
        # Copied, so that the address of the features, and with it the last bits of products,
        # does not depend on where they come from.
        torch.from_numpy(images.feature_ND[rows]).to(device, copy=True),
        torch.from_numpy(place_C[images.label_N[rows]]).to(device),
        int(place_C.max()) + 1,
    )


def number_of(classes: Ids, count: int, what: str) -> Ids:
    """(count,) index of each class among those that occur, -1 for the others.

    Raises BadInput, naming `what`, unless two or more occur.

    >>> number_of(np.array([3, 1, 3]), 5, "run/00").tolist()
    [-1, 0, -1, 1, -1]
    """
    found: Ids = np.full(count, -1, dtype=np.int64)
    present = np.unique(classes)
    if len(present) < 2:
        raise BadInput(f"{what}: all training images have one class; a probe needs two or more")
    found[present] = np.arange(len(present))
    return found


def _chunks(data: LabelledFeatures) -> Iterator[LabelledFeatures]:
    pieces = zip(data.feature_ND.split(_CHUNK), data.label_N.split(_CHUNK), strict=True)
    yield from (LabelledFeatures(*one, data.classes) for one in pieces)


def by_logistic(
    session: Session, how: LinearProbe, train_set: LabelledSet, test_set: LabelledSet
) -> dict[str, Any]:
    """Train a probe on one split of a data set and measure it on the other: the fields of a row.

    Raises Diverged if embeddings or a probe are not finite, BadInput if images or classes are too
    few, and TooManySkipped if too many images cannot be read.
    """
    train, test = (one.embedded(session, how.tolerance) for one in (train_set, test_set))
    what = f"{session.checkpoint} on {train_set.data.name}"
    # Only classes with training images get weights: the others would only be pushed away from every
    # image, and still take part in the softmax.
    place_C = number_of(train.label_N, len(train_set.data.classes), what)
    data = _on_device(train, slice(None), place_C, torch_device(session.evaluator.device))
    strength = how.strength or _chosen(how, data, train.keys, what)
    probe = fitted(data, strength)
    if not probe.is_finite:
        raise Diverged(
            f"{what}: the probe diverged to NaN or infinity at strength {strength:g}; use another "
            "--strength"
        )
    if probe.steps >= MOST_STEPS:
        warn(
            f"{what}: L-BFGS did not converge in {MOST_STEPS} steps; it needs fewer with a larger "
            "--strength"
        )
    return {
        **judged(probe, test, place_C),
        "strength": strength,
        "n_train": len(train.label_N),
        "n_skipped": train.skipped + test.skipped,
    }


def _chosen(how: LinearProbe, data: LabelledFeatures, keys: list[str], what: str) -> float:
    """The strength with the best accuracy on the held-out part; of ties the strongest.

    The weaker ones are left out once `FALLS` in a row are less accurate than the best so far:
    below the best strength probes only fit noise, ever more of it and ever more slowly.
    """
    # Drawn by key, so that the same images are held out for every checkpoint, also where
    # another one leaves an image out.
    draws = np.array([unit_hash("probe", how.seed, key) for key in keys])
    is_held = torch.from_numpy(draws < how.share).to(data.label_N.device)
    held, rest = data.at(is_held), data.at(~is_held)
    if not len(held.label_N) or not len(rest.label_N):
        raise BadInput(
            f"{what}: of {len(keys)} training images, {len(held.label_N)} are held out to "
            "choose the strength; use another --held-out, or give --strength"
        )
    start: Probe | None = None
    chosen, most, falls = STRENGTHS[0], -1.0, 0
    # From strong to weak, each started from the last: neighbouring optima are close, so that
    # L-BFGS needs few steps.
    for strength in STRENGTHS:
        probe = fitted(rest, strength, start, LOOSE)
        if not probe.is_finite:
            continue
        start, score = probe, accuracy(probe, held)
        falls = falls + 1 if score < most else 0
        if score > most:
            chosen, most = strength, score
        if falls == FALLS:
            break
    return chosen


def by_modx(
    session: Session, how: LinearProbe, train_set: LabelledSet, test_set: LabelledSet
) -> dict[str, Any]:
    """Train a probe on one split of a data set, and measure its best epoch on the other.

    Raises Diverged if features or a probe are not finite, BadInput if images or classes are too
    few, and TooManySkipped if too many images cannot be read.
    """
    what = f"{session.checkpoint} on {train_set.data.name}"
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
    what, steps = f"{session.checkpoint} on {train_set.data.name}", 0
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
    rest: list[tuple[Tensor, Tensor]] = []
    is_full = False
    for part in parts:
        all_ND, all_N = (torch.cat(side) for side in zip(*rest, part, strict=True))
        whole = len(all_N) - len(all_N) % size
        # Copied: the last bits of products may depend on the address of what is multiplied.
        for start in range(0, whole, size):
            end, is_full = start + size, True
            yield all_ND[start:end].clone(), all_N[start:end].clone()
        rest = [(all_ND[whole:], all_N[whole:])]
    if rest and not is_full:
        yield from rest


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
