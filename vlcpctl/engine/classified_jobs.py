"""The jobs of evaluations on labelled data sets: one per checkpoint, with its planned rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import read_manifest
from vlcpctl.data.classified import DataSet, TaskData
from vlcpctl.eval.cells import Cell, Place


@dataclass(frozen=True)
class Job:
    """One checkpoint, its manifest, and its planned rows."""

    checkpoint: Path
    manifest: dict[str, Any]
    cells: list[Cell]


def make_jobs(
    checkpoints: Sequence[Path], run: str | None, cells_of: Callable[[dict[str, Any]], list[Cell]]
) -> list[Job]:
    """One job per checkpoint; `run` replaces the run name of all of them in rows.

    Raises BadInput if a path is not a checkpoint.
    """
    jobs = []
    for path in checkpoints:
        manifest = read_manifest(path, "checkpoint")
        if run:
            manifest["run"] = run
        jobs.append(Job(path, manifest, cells_of(manifest)))
    return jobs


def cells_in(jobs: Iterable[Job]) -> list[Cell]:
    """The planned rows of all jobs."""
    return [cell for job in jobs for cell in job.cells]


def place_of(data: DataSet) -> Place:
    """The place of a data set in a stream; outside one, only its name."""
    if isinstance(data, TaskData):
        task = data.task
        return Place(task.slug, task.step, task.manifest.get("stream"), task.content)
    return Place(data.name, None, None, "")
