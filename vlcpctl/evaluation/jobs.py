"""The jobs of evaluations, one per checkpoint with its planned rows, and compute settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.manifest import read_manifest
from vlcpctl.data.classification.data_sets import DataSet, TaskData
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.planned_rows import Cell, Place


@dataclass(frozen=True)
class ClassificationJob:
    """One checkpoint, its manifest, and its planned rows."""

    checkpoint: Path
    manifest: dict[str, Any]
    cells: list[Cell]


def make_jobs(
    checkpoints: Sequence[Path], run: str | None, cells_of: Callable[[dict[str, Any]], list[Cell]]
) -> list[ClassificationJob]:
    """One job per checkpoint; `run` replaces the run name of all of them in rows.

    Raises BadInput if a path is not a checkpoint.
    """
    jobs = []
    for path in checkpoints:
        manifest = read_manifest(path, "checkpoint")
        if run:
            manifest["run"] = run
        jobs.append(ClassificationJob(path, manifest, cells_of(manifest)))
    return jobs


def cells_in(jobs: Iterable[ClassificationJob]) -> list[Cell]:
    """The planned rows of all jobs."""
    return [cell for job in jobs for cell in job.cells]


def place_of(data: DataSet) -> Place:
    """The place of a data set in a stream; outside one, only its name."""
    if isinstance(data, TaskData):
        task = data.task
        return Place(task.slug, task.step, task.manifest.get("stream"), task.content)
    return Place(data.name, None, None, "")


@dataclass(frozen=True, kw_only=True)
class SearchCompute:
    """How the evaluation is executed; rows do not depend on it."""

    backend: str
    device: str
    batch_size: int
    workers: int


@dataclass(frozen=True)
class RetrievalJob:
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


@dataclass(frozen=True, kw_only=True)
class ClassificationCompute:
    """How the evaluation is executed, and how many images may be skipped.

    Rows do not depend on any of it.
    """

    device: str
    batch_size: int
    workers: int
    tolerance: Tolerance
