"""The plan of a linear probe: its rows without their numbers, after checking inputs and options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.data.classification.data_sets import DataSet, open_data_sets
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.jobs import Job, read_checkpoints
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import PlannedRow, own_fields, place_of, row_fields

LOGISTIC, MODX = PROTOCOLS = ("logistic", "modx")
LBFGS, SGD = SOLVERS = ("lbfgs", "sgd")
STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
FALLS = 2  # strengths in a row with less accuracy than the best, after which the choice is made
HELD_OUT = 0.1
EPOCHS, RATE, SGD_BATCH = 100, 1.0, 1024
# Of the program that Mod-X's authors released; their paper has none of these values.
MODX_EPOCHS, MODX_RATE, MODX_BATCH = 100, 0.3, 256
_BY_SGD = f"it applies only to --solver {SGD} and --protocol {MODX}"
_IDLE = (
    GoesWith("solver", "protocol", (LOGISTIC,)),
    GoesWith("strength", "protocol", (LOGISTIC,)),
    GoesWith("held_out", "protocol", (LOGISTIC,)),
)
_IDLE_IN_LOGISTIC = (
    GoesWith("epochs", "solver", (SGD,), _BY_SGD),
    GoesWith("lr", "solver", (SGD,), _BY_SGD),
    GoesWith("held_out", "strength", (), "no strength is chosen"),
)
_COUNTS = ("metrics", "n_images", "n_ties", "n_skipped", "n_train", "n_unseen")
_MEASURED = {LOGISTIC: (*_COUNTS, "strength"), MODX: (*_COUNTS, "best_epoch", "last_acc1")}


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """The options of a probe; None means the default, and for `strength` that it is chosen."""

    words: tuple[str, ...]
    checkpoints: tuple[Path, ...]
    data: Path | None
    protocol: str
    solver: str | None
    strength: float | None
    held_out: float | None
    epochs: int | None
    lr: float | None
    train_split: str
    split: str
    run: str | None
    limit: int | None
    seed: int
    tolerance: Tolerance  # of images that cannot be read

    @property
    def is_modx(self) -> bool:
        """Whether the probe is that of Mod-X's authors."""
        return self.protocol == MODX

    @property
    def solver_name(self) -> str:
        """The solver of the probe."""
        return SGD if self.is_modx else self.solver or LBFGS

    @property
    def row_protocol(self) -> str:
        """The protocol in rows: Mod-X's, else the solver."""
        return MODX if self.is_modx else self.solver_name

    @property
    def usual_epochs(self) -> int:
        """The epochs of SGD unless they are given."""
        return MODX_EPOCHS if self.is_modx else EPOCHS

    @property
    def usual_rate(self) -> float:
        """The initial learning rate of SGD unless it is given."""
        return MODX_RATE if self.is_modx else RATE


@dataclass(frozen=True)
class ProbePlan:
    """The data sets and planned rows, known before a model is loaded."""

    request: ProbeRequest
    data_sets: list[DataSet]
    jobs: list[Job]

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                classes, solver = row.fields["n_classes"], row.fields["protocol"]
                what = f"{row.fields['task']}, {classes} classes, by {solver}"
                yield f"{job.label}: {what}{self._cost}"

    @property
    def _cost(self) -> str:
        if not self.request.is_modx:
            return ""
        epochs = self.request.epochs or MODX_EPOCHS
        return f", every training image embedded in each of {epochs} epochs"


def make_plan(request: ProbeRequest) -> ProbePlan:
    """The data sets and jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit or have no effect, and BadInput for unusable data.
    """
    _check_options(request)
    data_sets = open_data_sets(request.words, request.data, "own")
    for one in data_sets:
        one.check(request.train_split)
        one.check(request.split)
        if len(one.classes) < 2:
            raise UsageError(
                f"{one.name} has one class, {one.classes[0]!r}; a probe needs two or more"
            )
    places = [place_of(one, request.train_split, request.split) for one in data_sets]
    checkpoints = read_checkpoints(request.checkpoints, request.run)
    jobs = [
        Job(path, one.manifest, _rows(one, data_sets, places, request))
        for path, one in checkpoints.items()
    ]
    return ProbePlan(request, data_sets, jobs)


def _check_options(request: ProbeRequest) -> None:
    _check_names(request)
    refuse_idle(_IDLE, vars(request))
    if not request.is_modx:
        refuse_idle(_IDLE_IN_LOGISTIC, {**vars(request), "solver": request.solver_name})
    for option, value in (("--lr", request.lr), ("--strength", request.strength)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} {value} must be above 0 and finite")
    if request.train_split == request.split:
        raise UsageError(f"--train-split and --split are both {request.split!r}")
    _check_choice(request)


def _check_names(request: ProbeRequest) -> None:
    if request.protocol not in PROTOCOLS:
        raise UsageError(f"--protocol: {unknown_name('protocol', request.protocol, PROTOCOLS)}")
    if request.solver_name not in SOLVERS:
        raise UsageError(f"--solver: {unknown_name('solver', request.solver_name, SOLVERS)}")


def _check_choice(request: ProbeRequest) -> None:
    """Refuse options for choosing the strength if --strength gives it."""
    if request.held_out is not None and not 0 < request.held_out < 1:
        raise UsageError(f"--held-out {request.held_out} must be between 0 and 1")
    if request.strength is not None and request.seed and request.solver_name != SGD:
        raise UsageError(
            f"--seed {request.seed} has no effect with --strength: nothing is drawn at random"
        )


def _rows(
    checkpoint: RunCheckpoint,
    data_sets: Sequence[DataSet],
    places: Sequence[TaskPlace],
    request: ProbeRequest,
) -> list[PlannedRow]:
    steps = checkpoint.steps(places)
    common = {
        "evaluator": "probe",
        "protocol": request.row_protocol,
        "gallery": "own",
        "split": request.split,
        "limit": request.limit,
        "options": _options(request),
        **_unusual(request),
    }
    found = []
    for number, (data, place, step) in enumerate(zip(data_sets, places, steps, strict=True)):
        more = {**common, "n_classes": len(data.classes)}
        where = own_fields(place, step, checkpoint.digits)
        fields = row_fields(checkpoint, where, more)
        found.append(PlannedRow((number,), fields, _MEASURED[request.protocol]))
    return found


def _options(request: ProbeRequest) -> dict[str, Any]:
    """All options that decide the numbers; None for those that have no effect."""
    is_sgd, is_chosen = request.solver_name == SGD, request.strength is None
    if request.is_modx:
        return {
            "protocol": MODX,
            "train_split": request.train_split,
            "epochs": request.epochs or MODX_EPOCHS,
            "lr": request.lr or MODX_RATE,
            "batch": MODX_BATCH,
            "epoch_chosen_on": request.split,
            "seed": request.seed,
        }
    return {
        "solver": request.solver_name,
        "train_split": request.train_split,
        "strength": request.strength,  # None: chosen
        "held_out": (request.held_out or HELD_OUT) if is_chosen else None,
        "epochs": (request.epochs or EPOCHS) if is_sgd else None,
        "lr": (request.lr or RATE) if is_sgd else None,
        "batch": SGD_BATCH if is_sgd else None,
        "seed": request.seed,
    }


def _unusual(request: ProbeRequest) -> dict[str, Any]:
    """The row fields for options that differ from their defaults."""
    usual = {
        "train_split": (request.train_split, "train"),
        "fixed_strength": (request.strength, None),
        "held_out": (request.held_out or HELD_OUT, HELD_OUT),
        "epochs": (request.epochs or request.usual_epochs, request.usual_epochs),
        "lr": (request.lr or request.usual_rate, request.usual_rate),
        "probe_seed": (request.seed, 0),
    }
    return {name: given for name, (given, expected) in usual.items() if given != expected}
