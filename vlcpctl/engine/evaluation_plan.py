"""What an evaluation will do: its rows without their numbers, known before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import already_made, read_manifest
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.data.task import Task
from vlcpctl.eval.cells import GALLERIES, Cell, Place, cells

PROTOCOLS = ("cross-modal",)
DUPLICATES = ("unite", "separate")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    tasks: tuple[Task, ...]
    checkpoints: tuple[Path, ...]
    gallery: str
    protocol: str
    split: str
    duplicates: str
    run: str | None
    limit: int | None
    save_embeddings: Path | None
    force: bool


@dataclass(frozen=True, kw_only=True)
class Means:
    """How the work is done; rows depend on none of it."""

    backend: str
    device: str
    batch_size: int
    workers: int


@dataclass(frozen=True)
class Job:
    """One checkpoint and the rows that it will give; `embeddings` is where to keep what it sees."""

    checkpoint: Path
    manifest: dict[str, Any]
    cells: list[Cell]
    embeddings: Path | None
    embeddings_identity: dict[str, Any]

    def lines(self) -> Iterator[str]:
        """The plan for a person."""
        label = f"{self.manifest['run']} step {self.manifest['step']}"
        for cell in self.cells:
            yield f"{label}: {cell.fields['gallery']} gallery of {', '.join(cell.fields['tasks'])}"
        if self.embeddings is not None:
            yield f"{label}: embeddings to {self.embeddings}"


def make_plan(request: Request) -> list[Job]:
    """The jobs of a request, its inputs checked."""
    _check_names(request)
    places = [_place(task, request.split) for task in request.tasks]
    manifests = [read_manifest(path, "checkpoint") for path in request.checkpoints]
    jobs = [
        _job(path, manifest, places, request)
        for path, manifest in zip(request.checkpoints, manifests, strict=True)
    ]
    if not any(job.cells for job in jobs):
        raise UsageError(
            "there is nothing to evaluate: no checkpoint has learned a task whose merged gallery "
            "is complete; --gallery own needs no other tasks"
        )
    return jobs


def _check_names(request: Request) -> None:
    for kind, name, known in (
        ("gallery", request.gallery, GALLERIES),
        ("protocol", request.protocol, PROTOCOLS),
        ("way with duplicates", request.duplicates, DUPLICATES),
    ):
        if name not in known:
            raise UsageError(unknown_name(kind, name, known))
    names = [path.name for path in request.checkpoints]
    again = [name for name in names if names.count(name) > 1]
    if request.save_embeddings and again:
        raise UsageError(
            f"--save-embeddings makes one directory per checkpoint, and two are named {again[0]}; "
            "give them in separate commands"
        )


def _place(task: Task, split: str) -> Place:
    if split not in task.counts:
        known = ", ".join(task.counts)
        raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")
    if task.counts[split] == 0:
        raise BadInput(f"{task.path}: split {split} has no images")
    return Place(task.slug, task.step, task.manifest.get("stream"), task.content)


def _job(path: Path, manifest: dict[str, Any], places: list[Place], request: Request) -> Job:
    if request.run:
        manifest["run"] = request.run
    common: dict[str, Any] = {"protocol": request.protocol, "split": request.split}
    # Readers ignore fields that they do not know; these say why a row differs from the usual one.
    if request.duplicates != "unite":
        common["duplicates"] = request.duplicates
    if request.limit:
        common["limit"] = request.limit
    identity = {
        "checkpoint": manifest["content"],
        "tasks": [place.content for place in places],
        "split": request.split,
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
