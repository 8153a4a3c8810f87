"""The logistic probe: multinomial logistic regression on frozen features.

Minimises the mean cross-entropy plus strength / 2 times the squared weights; biases are not
penalised. With N images, that is scikit-learn's LogisticRegression(C = 1 / (strength * N)).
The strength is given, or chosen on a held-out part of the training images.
Shapes: N images, B of them at once, C classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import linear

from vlcpctl.core.console import warn
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.evaluation.classification.labelled_sets import Images, LabelledSet
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.search.count import BAND
from vlcpctl.evaluation.search.vectors import Ids
from vlcpctl.files.ids import unit_hash
from vlcpctl.metrics.accuracy import accuracies, tally
from vlcpctl.metrics.recall import count_touched

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.probe import LinearProbe

# Largest component of the gradient when L-BFGS stops: to choose a strength, as small as single
# precision allows (rounding stops the line search near 1e-7), and for the probe that is evaluated.
LOOSE, TIGHT = 1e-6, 1e-8
MOST_STEPS = 1000  # of L-BFGS, as in CLIP's linear probes (Radford et al., 2021, appendix A.3)
STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
FALLS = 2  # strengths in a row with less accuracy than the best, after which the choice is made
_CHUNK = 1 << 14  # images converted to double precision at once

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


def labelled(images: Images, place_C: Ids, device: torch.device) -> LabelledFeatures:
    """The images on a device; `place_C` numbers the classes that have weights."""
    return LabelledFeatures(
        # Copied, so that the address of the features, and with it the last bits of products,
        # does not depend on where they come from.
        torch.from_numpy(images.feature_ND[:]).to(device, copy=True),
        torch.from_numpy(place_C[images.label_N]).to(device),
        int(place_C.max()) + 1,
    )


def judged(probe: Probe, test: Images, place_C: Ids) -> dict[str, Any]:
    """The fields of a row that a probe achieves on a split.

    An image whose class has no weights (-1 in `place_C`) is wrong.
    """
    is_seen, count = place_C[test.label_N] >= 0, len(place_C)
    seen = Images(test.feature_ND[np.flatnonzero(is_seen)], test.label_N[is_seen], [], 0)
    worst, best = probe_ranks(probe, labelled(seen, place_C, probe.weight_CD.device))
    rank_N = np.full(len(test.label_N), count + 1)  # unseen classes rank last: never a hit
    rank_N[is_seen] = worst
    return {
        "metrics": accuracies(tally(rank_N, test.label_N, count)),
        "n_images": len(test.label_N),
        "n_unseen": int(np.count_nonzero(~is_seen)),
        "n_ties": count_touched(worst, best),
    }


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
    yield from (LabelledFeatures(feature, label, data.classes) for feature, label in pieces)


def measured(
    session: Session, how: LinearProbe, train_set: LabelledSet, test_set: LabelledSet
) -> dict[str, Any]:
    """Train a probe on one split of a data set and measure it on the other: the fields of a row.

    Raises Diverged if embeddings or a probe are not finite, BadInput if images or classes are too
    few, and TooManySkipped if too many images cannot be read.
    """
    train, test = (one.embedded(session, how.tolerance) for one in (train_set, test_set))
    what = f"{session.checkpoint} on {train_set.name}"
    # Only classes with training images get weights: the others would only be pushed away from every
    # image, and still take part in the softmax.
    place_C = number_of(train.label_N, len(train_set.data.classes), what)
    data = labelled(train, place_C, torch_device(session.evaluator.device))
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
