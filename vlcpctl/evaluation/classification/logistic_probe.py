"""Logistic probes of checkpoints: embed both splits, choose the L2 strength, fit, and evaluate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from vlcpctl.core.console import say, warn
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.classification.labelled_sets import LabelledSet
from vlcpctl.evaluation.classification.linear_probe import (
    LOOSE,
    MOST_STEPS,
    TIGHT,
    LabelledFeatures,
    Probe,
    Sgd,
    accuracy,
    fit_lbfgs,
    fit_sgd,
    judged,
    labelled,
    number_of,
)
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.files.ids import unit_hash

STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
FALLS = 2  # strengths in a row with less accuracy than the best, after which the choice is made


@dataclass(frozen=True)
class ProbeResult:
    """The accuracies in percent over `n_images`; the class of `n_unseen` has no training image.

    Those count as wrong. `strength` is the L2 penalty of the probe, given or chosen.
    """

    metrics: dict[str, float]
    strength: float
    n_train: int
    n_images: int
    n_unseen: int
    n_ties: int
    n_skipped: int


@final
@dataclass(frozen=True, kw_only=True)
class LogisticProbe:
    """How a probe is fitted: by L-BFGS, or by `sgd` if it is given.

    A `strength` of None is chosen on the share `held_out` of the images, drawn with `seed`.
    """

    sgd: Sgd | None
    strength: float | None
    held_out: float
    seed: int

    def measure(
        self, session: Session, train_set: LabelledSet, test_set: LabelledSet, tolerance: Tolerance
    ) -> ProbeResult:
        """Train a probe on one split of a data set and measure it on the other.

        Raises Diverged if embeddings or a probe are not finite, BadInput if images or classes are
        too few, and TooManySkipped if more images than `tolerance` cannot be read.
        """
        train, test = (one.images_by(session, tolerance) for one in (train_set, test_set))
        what = f"{session.checkpoint} on {train_set.name}"
        # Only classes with training images get weights: the others would only be pushed away from
        # every image, and still take part in the softmax.
        place_C = number_of(train.label_N, len(train_set.data.classes))
        data = labelled(train, place_C, torch_device(session.compute.device))
        if data.classes < 2:
            raise BadInput(f"{what}: all training images have one class; a probe needs two or more")
        strength = self.strength or self._chosen(data, train.keys, what)
        probe = self._fitted(data, strength)
        if not probe.is_finite:
            raise Diverged(self._why(what, f"strength {strength:g}"))
        if self.sgd is None and probe.steps >= MOST_STEPS:
            warn(
                f"{what}: L-BFGS did not converge in {MOST_STEPS} steps; "
                "it needs fewer with a larger --strength"
            )
        return ProbeResult(
            **vars(judged(probe, test, place_C)),
            strength=strength,
            n_train=len(train.label_N),
            n_skipped=train.skipped + test.skipped,
        )

    def _chosen(self, data: LabelledFeatures, keys: list[str], what: str) -> float:
        """The strength with the best accuracy on the held-out part; of ties the strongest.

        The weaker ones are left out once `FALLS` in a row are less accurate than the best so far:
        below the best strength probes only fit noise, ever more of it and ever more slowly.
        """
        # Drawn by key, so that the same images are held out for every checkpoint, also where
        # another one leaves an image out.
        draws = np.array([unit_hash("probe", self.seed, key) for key in keys])
        is_held = torch.from_numpy(draws < self.held_out).to(data.label_N.device)
        held, rest = data.at(is_held), data.at(~is_held)
        if not len(held.label_N) or not len(rest.label_N):
            raise BadInput(
                f"{what}: of {len(keys)} training images, {len(held.label_N)} are held out to "
                "choose the strength; use another --held-out, or give --strength"
            )
        found: dict[float, float] = {}
        start: Probe | None = None
        falls = 0
        # From strong to weak, each started from the last: neighbouring optima are close, so that
        # L-BFGS needs few steps. `max` keeps the first of ties, the strongest.
        for strength in STRENGTHS:
            probe = self._fitted(rest, strength, start, LOOSE)
            if not probe.is_finite:
                continue
            found[strength], start = accuracy(probe, held), probe
            falls = falls + 1 if found[strength] < max(found.values()) else 0
            if falls == FALLS:
                break
        if not found:
            raise Diverged(self._why(what, "every strength"))
        best = max(found, key=found.__getitem__)
        say(
            f"{what}: strength {best:g}, {found[best]:.2f} % of {len(held.label_N)} held-out images"
        )
        return best

    def _why(self, what: str, where: str) -> str:
        """The message for probes with non-finite weights."""
        way_out = "another --strength" if self.sgd is None else "a smaller --lr or --strength"
        return f"{what}: the probe diverged to NaN or infinity at {where}; use {way_out}"

    def _fitted(
        self,
        data: LabelledFeatures,
        strength: float,
        start: Probe | None = None,
        tolerance: float = TIGHT,
    ) -> Probe:
        if self.sgd is None:
            return fit_lbfgs(data, strength, start, tolerance)
        return fit_sgd(data, strength, self.sgd)
