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

LBFGS, SGD = SOLVERS = ("lbfgs", "sgd")
STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
FALLS = 2  # strengths in a row with less accuracy than the best, after which the choice is made
HELD_OUT = 0.1
EPOCHS, RATE, SGD_BATCH = 100, 1.0, 1024
_IDLE = (
    GoesWith("epochs", "solver", (SGD,)),
    GoesWith("lr", "solver", (SGD,)),
    GoesWith("held_out", "strength", (), "no strength is chosen"),
)
_MEASURED = ("metrics", "n_images", "n_ties", "n_skipped", "n_train", "n_unseen", "strength")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a probe; None means the default, and for `strength` that it is chosen."""

    words: tuple[str, ...]
    checkpoints: tuple[Path, ...]
    data: Path | None
    solver: str
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


@dataclass(frozen=True)
class ProbePlan:
    """The data sets and planned rows, known before a model is loaded."""

    request: Request
    data_sets: list[DataSet]
    jobs: list[Job]

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                classes, solver = row.fields["n_classes"], row.fields["protocol"]
                yield f"{job.label}: {row.fields['task']}, {classes} classes, by {solver}"


def make_plan(request: Request) -> ProbePlan:
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


def _check_options(request: Request) -> None:
    if request.solver not in SOLVERS:
        raise UsageError(f"--solver: {unknown_name('solver', request.solver, SOLVERS)}")
    refuse_idle(_IDLE, vars(request))
    for option, value in (("--lr", request.lr), ("--strength", request.strength)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{option} {value} must be above 0 and finite")
    if request.train_split == request.split:
        raise UsageError(f"--train-split and --split are both {request.split!r}")
    _check_choice(request)


def _check_choice(request: Request) -> None:
    """Refuse options for choosing the strength if --strength gives it."""
    if request.held_out is not None and not 0 < request.held_out < 1:
        raise UsageError(f"--held-out {request.held_out} must be between 0 and 1")
    if request.strength is not None and request.seed and request.solver != SGD:
        raise UsageError(
            f"--seed {request.seed} has no effect with --strength: nothing is drawn at random"
        )


def _rows(
    checkpoint: RunCheckpoint,
    data_sets: Sequence[DataSet],
    places: Sequence[TaskPlace],
    request: Request,
) -> list[PlannedRow]:
    steps = checkpoint.steps(places)
    common = {
        "evaluator": "probe",
        "protocol": request.solver,
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
        found.append(PlannedRow((number,), fields, _MEASURED))
    return found


def _options(request: Request) -> dict[str, Any]:
    """All options that decide the numbers; None for those that have no effect."""
    is_sgd, is_chosen = request.solver == SGD, request.strength is None
    return {
        "solver": request.solver,
        "train_split": request.train_split,
        "strength": request.strength,  # None: chosen
        "held_out": (request.held_out or HELD_OUT) if is_chosen else None,
        "epochs": (request.epochs or EPOCHS) if is_sgd else None,
        "lr": (request.lr or RATE) if is_sgd else None,
        "batch": SGD_BATCH if is_sgd else None,
        "seed": request.seed,
    }


def _unusual(request: Request) -> dict[str, Any]:
    """The row fields for options that differ from their defaults."""
    usual = {
        "train_split": (request.train_split, "train"),
        "fixed_strength": (request.strength, None),
        "held_out": (request.held_out or HELD_OUT, HELD_OUT),
        "epochs": (request.epochs or EPOCHS, EPOCHS),
        "lr": (request.lr or RATE, RATE),
        "probe_seed": (request.seed, 0),
    }
    return {name: given for name, (given, expected) in usual.items() if given != expected}
