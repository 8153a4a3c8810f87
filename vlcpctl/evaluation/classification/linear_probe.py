"""A linear probe: multinomial logistic regression on frozen features.

Minimises the mean cross-entropy plus strength / 2 times the squared weights; biases are not
penalised. With N images, that is scikit-learn's LogisticRegression(C = 1 / (strength * N)).
Shapes: N images, B of them at once, C classes, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from vlcpctl.core.seeds import generator
from vlcpctl.evaluation.search.candidates import BAND
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.ranks import Ranks

MOST_STEPS = 1000  # of L-BFGS, as in CLIP's linear probes (Radford et al., 2021, appendix A.3)
_CHUNK = 1 << 14  # images converted to double precision at once
_MOMENTUM = 0.9


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


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Settings of stochastic gradient descent; the learning rate falls to 0 along a cosine."""

    epochs: int
    rate: float
    batch: int
    seed: int


def fit_lbfgs(data: LabelledFeatures, strength: float, start: Probe | None = None) -> Probe:
    """Fit a probe by L-BFGS; the loss is convex, so `start` changes only the time it takes."""
    weight, bias = _parameters(data, start)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=MOST_STEPS,
        max_eval=2 * MOST_STEPS,
        tolerance_grad=1e-8,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss_and_gradient() -> float:
        optimizer.zero_grad()
        return _backward(data, weight, bias, strength)

    optimizer.step(loss_and_gradient)
    steps = int(optimizer.state[weight]["n_iter"])
    return Probe(weight.detach(), bias.detach(), steps)


def fit_sgd(data: LabelledFeatures, strength: float, settings: Sgd) -> Probe:
    """Fit a probe by mini-batch SGD with momentum, in an order that depends on seed and epoch."""
    weight, bias = _parameters(data, None)
    optimizer = torch.optim.SGD([weight, bias], lr=settings.rate, momentum=_MOMENTUM)
    size = min(settings.batch, len(data.label_N))
    every = len(data.label_N) // size  # each epoch drops an incomplete last batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs * every)
    for epoch in range(settings.epochs):
        order = generator(settings.seed, "probe", epoch).permutation(len(data.label_N))
        for number in range(every):
            rows = torch.from_numpy(order[number * size : (number + 1) * size])
            optimizer.zero_grad()
            _backward(data.at(rows.to(data.label_N.device)), weight, bias, strength)
            optimizer.step()
            schedule.step()
    return Probe(weight.detach(), bias.detach(), settings.epochs * every)


@torch.inference_mode()
def probe_ranks(probe: Probe, data: LabelledFeatures) -> Ranks:
    """(N,) rank of each image's class, from 1: at worst (it loses its ties) and at best."""
    parts = [_ranks(probe.logits(part.feature_ND), part.label_N) for part in _chunks(data)]
    worst, best = (torch.cat(side).cpu().numpy() for side in zip(*parts, strict=True))
    return Ranks(worst, best)


def accuracy(probe: Probe, data: LabelledFeatures) -> float:
    """Percent of the images whose class ranks first; a tie is never a hit."""
    return 100 * float(np.mean(probe_ranks(probe, data).worst == 1))


def number_of(classes: Ids, count: int) -> Ids:
    """(count,) index of each class among those that occur, -1 for the others.

    >>> number_of(np.array([3, 1, 3]), 5).tolist()
    [-1, 0, -1, 1, -1]
    """
    found: Ids = np.full(count, -1, dtype=np.int64)
    present = np.unique(classes)
    found[present] = np.arange(len(present))
    return found


def _parameters(data: LabelledFeatures, start: Probe | None) -> tuple[Tensor, Tensor]:
    shape = (data.classes, data.feature_ND.shape[1])
    weight = data.feature_ND.new_zeros(shape, dtype=torch.float64)
    bias = weight.new_zeros(data.classes)
    if start is not None:
        weight, bias = start.weight_CD.clone(), start.bias_C.clone()
    return weight.requires_grad_(), bias.requires_grad_()


def _backward(data: LabelledFeatures, weight: Tensor, bias: Tensor, strength: float) -> float:
    """Return the loss, and add its gradient to that of the parameters."""
    total = 0.0
    for part in _chunks(data):
        logits = linear(part.feature_ND.double(), weight, bias)
        # A sum over all images divided by their number: chunks may differ in size.
        mean = cross_entropy(logits, part.label_N, reduction="sum") / len(data.label_N)
        mean.backward()
        total += mean.item()
    penalty = strength / 2 * weight.square().sum()
    penalty.backward()
    return total + penalty.item()


def _chunks(data: LabelledFeatures) -> Iterator[LabelledFeatures]:
    pieces = zip(data.feature_ND.split(_CHUNK), data.label_N.split(_CHUNK), strict=True)
    yield from (LabelledFeatures(feature, label, data.classes) for feature, label in pieces)


def _ranks(logit_BC: Tensor, label_B: Tensor) -> tuple[Tensor, Tensor]:
    own_B1 = logit_BC.gather(1, label_B[:, None])
    # Negated, so that NaN outranks the class; the count includes the class itself.
    worst = (~(logit_BC < own_B1 - BAND)).sum(1)
    best = (logit_BC >= own_B1 + BAND).sum(1) + 1
    return worst, best
