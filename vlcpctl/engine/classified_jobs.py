"""The jobs of evaluations on data sets with classes: a checkpoint each, and its rows to come."""

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
    """One checkpoint, and the rows that it will give."""

    checkpoint: Path
    manifest: dict[str, Any]
    cells: list[Cell]


def make_jobs(
    checkpoints: Sequence[Path], run: str | None, cells_of: Callable[[dict[str, Any]], list[Cell]]
) -> list[Job]:
    """A job for each checkpoint; `run` is its name in rows, if not its own."""
    jobs = []
    for path in checkpoints:
        manifest = read_manifest(path, "checkpoint")
        if run:
            manifest["run"] = run
        jobs.append(Job(path, manifest, cells_of(manifest)))
    return jobs


def cells_in(jobs: Iterable[Job]) -> list[Cell]:
    """Every row to come."""
    return [cell for job in jobs for cell in job.cells]


def place_of(data: DataSet) -> Place:
    """Where a data set is in a stream, if it is in one."""
    if isinstance(data, TaskData):
        task = data.task
        return Place(task.slug, task.step, task.manifest.get("stream"), task.content)
    return Place(data.name, None, None, "")
