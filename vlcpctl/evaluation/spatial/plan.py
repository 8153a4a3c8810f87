"""The plan of a spatial evaluation: which checkpoints are compared on which tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.rows import run_label
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.jobs import Job, read_checkpoints
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.planned_rows import (
    PlannedRow,
    checkpoint_fields,
    own_fields,
    place_of,
    row_fields,
)

BETWEEN = ("neighbours", "all")
SPATIAL = "spatial"
_MEASURED = ("metrics", "degrees", "n_images", "n_texts")


@dataclass(frozen=True, kw_only=True)
class SpatialRequest:
    """The options of a spatial evaluation."""

    tasks: tuple[Task, ...]
    checkpoints: tuple[Path, ...]
    between: str
    split: str
    limit: int | None


@dataclass(frozen=True)
class SpatialPlan:
    """The comparisons, a job each, known before a model is loaded."""

    request: SpatialRequest
    jobs: list[Job]

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            for row in job.rows:
                fields, since = row.fields, row.fields["since"]
                yield f"{_label(since)} -> {_label(fields)}: {fields['task']}"


def make_plan(request: SpatialRequest) -> SpatialPlan:
    """The comparisons of a request, after checking its inputs.

    Raises UsageError if the checkpoints cannot be paired, and BadInput for a task without images.
    """
    if request.between not in BETWEEN:
        raise UsageError(unknown_name("value of --between:", request.between, BETWEEN))
    places = [_place(task, request.split) for task in request.tasks]
    found = read_checkpoints(request.checkpoints, None)
    paths, checkpoints = list(found), list(found.values())
    manifests = [one.manifest for one in checkpoints]
    jobs = []
    for before, after in _pairs(request, manifests):
        rows = _rows(checkpoints[before], checkpoints[after], places, request)
        jobs.append(Job(paths[after], manifests[after], rows, before=paths[before]))
    return SpatialPlan(request, jobs)


def _place(task: Task, split: str) -> TaskPlace:
    if not task.counts.get(split):
        known = ", ".join(name for name, count in task.counts.items() if count)
        raise BadInput(f"{task.path} has no images in split {split!r} (it has: {known})")
    return place_of(task)


def _pairs(
    request: SpatialRequest, manifests: Sequence[CheckpointManifest]
) -> list[tuple[int, int]]:
    """The earlier and the later checkpoint of each comparison."""
    if len(manifests) < 2:
        raise UsageError("there is nothing to compare: give at least two checkpoints")
    _refuse_twins(request, manifests)
    chains = _chains(manifests)
    if len(manifests) == 2 and len(chains) == 2:
        return [(0, 1)]  # of two runs: in the order given
    lonely = [chain[0] for chain in chains if len(chain) == 1]
    if lonely:
        path, name = request.checkpoints[lonely[0]], _run_of(manifests[lonely[0]])
        raise UsageError(
            f"{path} is the only checkpoint of run {name!r} here; give another of that run, or "
            "leave it out (two runs are compared with one checkpoint of each)"
        )
    return [pair for chain in chains for pair in _along(chain, request.between)]


def _refuse_twins(request: SpatialRequest, manifests: Sequence[CheckpointManifest]) -> None:
    """Refuse checkpoints of equal run, seed and step: their rows could not be distinguished."""
    seen: dict[tuple[str, int, int | None], Path] = {}
    for path, manifest in zip(request.checkpoints, manifests, strict=True):
        run, seed, step = key = (_run_of(manifest), manifest.seed, manifest.step)
        first = seen.setdefault(key, path)
        if first != path:
            raise UsageError(
                f"{first} and {path} are both run {run!r}, seed {seed}, step {step}: "
                "their rows could not be distinguished; train one again with another --run"
            )


def _along(chain: list[int], between: str) -> list[tuple[int, int]]:
    """The pairs of a chain to compare, ordered by their later checkpoint."""
    places = range(len(chain))
    neighbours = {*pairwise(places), (0, len(chain) - 1)}
    wanted = combinations(places, 2) if between == "all" else neighbours
    pairs = sorted(wanted, key=lambda pair: pair[::-1])
    return [(chain[before], chain[after]) for before, after in pairs]


def _chains(manifests: Sequence[CheckpointManifest]) -> list[list[int]]:
    """The checkpoints of each run and seed in order of step, after the run's parent if given.

    Averages with different alpha are different runs, as in reports. A checkpoint that only starts
    other runs, such as an imported model, is not a chain of its own.
    """
    runs: dict[tuple[str, int], list[int]] = {}
    for number, manifest in enumerate(manifests):
        runs.setdefault((_run_of(manifest), manifest.seed), []).append(number)
    number_of = {manifest.content: number for number, manifest in enumerate(manifests)}
    chains, starts = [], set()
    for members in runs.values():
        members.sort(key=lambda number: _step(manifests[number]))
        start = number_of.get(manifests[members[0]].parent or "")
        starts.add(start)
        chains.append(members if start is None else [start, *members])
    return [chain for chain in chains if len(chain) > 1 or chain[0] not in starts]


def _run_of(manifest: CheckpointManifest) -> str:
    """The run's name in reports."""
    return run_label(manifest.run, manifest.alpha)


def _label(about: dict[str, Any]) -> str:
    return f"{run_label(about['run'], about.get('alpha'))} step {about['step']}"


def _step(manifest: CheckpointManifest) -> int:
    return -1 if manifest.step is None else manifest.step


def _since(before: RunCheckpoint) -> dict[str, Any]:
    about = checkpoint_fields(before)
    return {name: about[name] for name in ("run", "step", "alpha", "checkpoint") if name in about}


def _rows(
    before: RunCheckpoint,
    after: RunCheckpoint,
    places: Sequence[TaskPlace],
    request: SpatialRequest,
) -> list[PlannedRow]:
    common: dict[str, Any] = {
        "evaluator": SPATIAL,
        "protocol": "angles",
        "gallery": "own",
        "split": request.split,
        "limit": request.limit,
        "options": {},  # none decides the numbers
        "since": _since(before),
    }
    wheres = [
        own_fields(place, step, after.digits)
        for place, step in zip(places, after.steps(places), strict=True)
    ]
    return [
        PlannedRow((number,), row_fields(after, where, common), _MEASURED)
        for number, where in enumerate(wheres)
    ]
