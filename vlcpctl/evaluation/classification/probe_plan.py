"""The plan of a linear probe: its rows without their numbers, after checking inputs and options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.data.classification.data_sets import DataSet, open_data_sets
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.jobs import Job, read_manifests
from vlcpctl.evaluation.planned_rows import (
    PlannedRow,
    checkpoint_fields,
    place_of,
    row_fields,
    steps_of,
)

LBFGS, SGD = SOLVERS = ("lbfgs", "sgd")
STRENGTHS = tuple(10.0**-power for power in range(1, 9))  # to choose from, the strongest first
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
    manifests = read_manifests(request.checkpoints, request.run)
    jobs = [Job(path, one, _rows(one, data_sets, request)) for path, one in manifests.items()]
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
    manifest: CheckpointManifest, data_sets: Sequence[DataSet], request: Request
) -> list[PlannedRow]:
    places = [place_of(one) for one in data_sets]
    steps = steps_of(manifest, places)
    common = {
        "evaluator": "probe",
        "protocol": request.solver,
        "gallery": "own",
        "split": request.split,
        **_unusual(request),
    }
    found = []
    for number, (data, place, step) in enumerate(zip(data_sets, places, steps, strict=True)):
        where = {"task_step": step, "stream": place.stream, "task": place.slug}
        more = {**common, "n_classes": len(data.classes)}
        fields = row_fields(checkpoint_fields(manifest), where, [place.slug], more)
        found.append(PlannedRow((number,), fields, _MEASURED))
    return found


def _unusual(request: Request) -> dict[str, Any]:
    """The row fields for options that differ from their defaults."""
    usual = {
        "train_split": (request.train_split, "train"),
        "fixed_strength": (request.strength, None),
        "held_out": (request.held_out or HELD_OUT, HELD_OUT),
        "epochs": (request.epochs or EPOCHS, EPOCHS),
        "lr": (request.lr or RATE, RATE),
        "limit": (request.limit, None),
        "probe_seed": (request.seed, 0),
    }
    return {name: given for name, (given, expected) in usual.items() if given != expected}
