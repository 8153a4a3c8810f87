"""The plan of a retrieval evaluation: its rows without their numbers, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import read_manifest
from vlcpctl.core.atomic import already_made
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.data.task import Task
from vlcpctl.engine.protocols import (
    MULTI_MODAL,
    check_options,
    require_classes,
    require_fusion,
    splits_of,
)
from vlcpctl.eval.cells import GALLERIES, Cell, Place, cells
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT

DUPLICATES = ("unite", "separate")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of an evaluation; None for `split` and `map_variant` means the default."""

    tasks: tuple[Task, ...]
    checkpoints: tuple[Path, ...]
    gallery: str
    protocol: str
    map_variant: str | None
    split: str | None
    duplicates: str
    run: str | None
    limit: int | None
    save_embeddings: Path | None
    force: bool

    @property
    def splits(self) -> tuple[str, ...]:
        """The split to evaluate on, or the splits of queries and gallery."""
        return splits_of(self.tasks, self.protocol, self.split)


@dataclass(frozen=True, kw_only=True)
class Means:
    """How the evaluation is executed; rows do not depend on it."""

    backend: str
    device: str
    batch_size: int
    workers: int


@dataclass(frozen=True)
class Job:
    """One checkpoint and its planned rows; `embeddings` is where to save embeddings, or None."""

    checkpoint: Path
    manifest: dict[str, Any]
    cells: list[Cell]
    embeddings: Path | None
    embeddings_identity: dict[str, Any]

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        label = f"{self.manifest['run']} step {self.manifest['step']}"
        for cell in self.cells:
            yield f"{label}: {cell.fields['gallery']} gallery of {', '.join(cell.fields['tasks'])}"
        if self.embeddings is not None:
            yield f"{label}: embeddings to {self.embeddings}"


def make_plan(request: Request) -> list[Job]:
    """The jobs of a request, after checking its inputs.

    Raises UsageError for options that do not fit, BadInput for an unusable task or checkpoint, and
    Incompatible for a model that the protocol cannot evaluate.
    """
    _check_names(request)
    places = [_place(task, request.splits) for task in request.tasks]
    manifests = [read_manifest(path, "checkpoint") for path in request.checkpoints]
    if request.protocol == MULTI_MODAL:
        for path in request.checkpoints:
            require_fusion(path)
        for task in request.tasks:
            require_classes(task)
    jobs = [
        _job(path, manifest, places, request)
        for path, manifest in zip(request.checkpoints, manifests, strict=True)
    ]
    if not any(job.cells for job in jobs):
        raise UsageError(
            "there is nothing to evaluate: no checkpoint was trained on tasks that make a complete "
            "merged gallery; --gallery own does not need the other tasks"
        )
    return jobs


def _check_names(request: Request) -> None:
    for kind, name, known in (
        ("gallery", request.gallery, GALLERIES),
        ("value of --duplicates:", request.duplicates, DUPLICATES),
    ):
        if name not in known:
            raise UsageError(unknown_name(kind, name, known))
    check_options(request)
    names = [path.name for path in request.checkpoints]
    again = [name for name in names if names.count(name) > 1]
    if request.save_embeddings and again:
        raise UsageError(
            "--save-embeddings makes one directory per checkpoint name, but two are named "
            f"{again[0]}; evaluate them in separate commands"
        )


def _place(task: Task, splits: tuple[str, ...]) -> Place:
    for split in splits:
        if split not in task.counts:
            known = ", ".join(task.counts)
            raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")
        if task.counts[split] == 0:
            raise BadInput(f"{task.path}: split {split} has no images")
    return Place(task.slug, task.step, task.manifest.get("stream"), task.content)


def _job(path: Path, manifest: dict[str, Any], places: list[Place], request: Request) -> Job:
    if request.run:
        manifest["run"] = request.run
    split = "+".join(request.splits)
    common: dict[str, Any] = {"protocol": request.protocol, "split": split}
    # Recorded only when not the default, so that rows of a default evaluation keep their fields.
    if request.duplicates != "unite":
        common["duplicates"] = request.duplicates
    if request.map_variant not in {None, DEFAULT_VARIANT}:
        common["map_variant"] = request.map_variant
    if request.limit:
        common["limit"] = request.limit
    identity = {
        "checkpoint": manifest["content"],
        "tasks": [place.content for place in places],
        "split": split,
        "limit": request.limit,
    }
    out = _embeddings_of(path, request)
    if out is not None and already_made(out, "embeddings", identity, force=request.force):
        out = None
    return Job(path, manifest, cells(manifest, places, request.gallery, common), out, identity)


def _embeddings_of(path: Path, request: Request) -> Path | None:
    several = len(request.checkpoints) > 1
    out = request.save_embeddings
    return out / path.name if out is not None and several else out
