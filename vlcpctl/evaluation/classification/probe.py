"""Linear probes of checkpoints: embed both splits, choose the L2 strength, fit, and evaluate."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from vlcpctl.core.console import say, warn
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import BadInput, Diverged
from vlcpctl.core.hashing import unit_hash
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
    number_of,
)
from vlcpctl.evaluation.classification.probe_images import (
    Images,
    images_of,
    judged,
    labelled,
)
from vlcpctl.evaluation.classification.probe_plan import (
    EPOCHS,
    FALLS,
    HELD_OUT,
    RATE,
    SGD,
    SGD_BATCH,
    STRENGTHS,
    ProbePlan,
)
from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.session import Session


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
class ProbeEvaluator(Evaluator):
    """Accuracies of probes trained on the image features of checkpoints."""

    def __init__(self, plan: ProbePlan, compute: Compute) -> None:
        request = self.request = plan.request
        splits = (request.train_split, request.split)
        self.sets = [
            [LabelledSet(data, split, request.limit) for split in splits] for data in plan.data_sets
        ]
        self.device = torch_device(compute.device)

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """Train a probe on one split of a data set and measure it on the other.

        Raises Diverged if embeddings or a probe are not finite, BadInput if images or classes are
        too few, and TooManySkipped if too many images cannot be read.
        """
        (number,) = row.tasks
        train_set, test_set = self.sets[number]
        tolerance = self.request.tolerance
        train, test = (images_of(session, one, tolerance) for one in (train_set, test_set))
        what = f"{session.checkpoint} on {train_set.name}"
        return dataclasses.asdict(self._probe(train, test, len(train_set.data.classes), what))

    def _probe(self, train: Images, test: Images, count: int, what: str) -> ProbeResult:
        """Train a probe on `train` and measure it on `test`, both of `count` classes."""
        # Only classes with training images get weights: the others would only be pushed away from
        # every image, and still take part in the softmax.
        place_C = number_of(train.label_N, count)
        data = labelled(train, place_C, self.device)
        if data.classes < 2:
            raise BadInput(f"{what}: all training images have one class; a probe needs two or more")
        strength = self.request.strength or self._chosen(data, train.keys, what)
        probe = self._fitted(data, strength)
        if not probe.is_finite:
            raise Diverged(self._why(what, f"strength {strength:g}"))
        if self.request.solver_name != SGD and probe.steps >= MOST_STEPS:
            warn(
                f"{what}: L-BFGS did not converge in {MOST_STEPS} steps; "
                "it needs fewer with a larger --strength"
            )
        return ProbeResult(
            **judged(probe, test, place_C).fields(),
            strength=strength,
            n_train=len(train.label_N),
            n_skipped=train.skipped + test.skipped,
        )

    def _chosen(self, data: LabelledFeatures, keys: list[str], what: str) -> float:
        """The strength with the best accuracy on the held-out part; of ties the strongest.

        The weaker ones are left out once `FALLS` in a row are less accurate than the best so far:
        below the best strength probes only fit noise, ever more of it and ever more slowly.
        """
        share = self.request.held_out or HELD_OUT
        # Drawn by key, so that the same images are held out for every checkpoint, also where
        # another one leaves an image out.
        draws = np.array([unit_hash("probe", self.request.seed, key) for key in keys])
        is_held = torch.from_numpy(draws < share).to(data.label_N.device)
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
        way_out = (
            "a smaller --lr or --strength"
            if self.request.solver_name == SGD
            else "another --strength"
        )
        return f"{what}: the probe diverged to NaN or infinity at {where}; use {way_out}"

    def _fitted(
        self,
        data: LabelledFeatures,
        strength: float,
        start: Probe | None = None,
        tolerance: float = TIGHT,
    ) -> Probe:
        request = self.request
        if request.solver_name != SGD:
            return fit_lbfgs(data, strength, start, tolerance)
        how = Sgd(
            epochs=request.epochs or EPOCHS,
            rate=request.lr or RATE,
            batch=SGD_BATCH,
            seed=request.seed,
        )
        return fit_sgd(data, strength, how)
