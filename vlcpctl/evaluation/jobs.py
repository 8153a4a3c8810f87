"""The jobs of an evaluation, planned before a model is loaded: checkpoints with rows to measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.gpu import in_words, worker_count
from vlcpctl.distributed.pool import ALONE, Pool
from vlcpctl.evaluation.embedding_cache import EmbeddingCache
from vlcpctl.evaluation.membership import RunCheckpoint, run_checkpoints
from vlcpctl.evaluation.planned_rows import PlannedRow


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How the models are run; rows do not depend on it."""

    device: str
    batch_size: int
    workers: int | None  # None: auto
    backend: str = "auto"  # of the search
    nproc: int = 1  # processes that embed
    pool: Pool = ALONE  # these processes, while rows are measured
    embedding_cache: Path | None = None
    cache: EmbeddingCache | None = None  # in that directory, while rows are measured

    @property
    def worker_count(self) -> int:
        """The number of processes that decode images; 0 decodes them in this process."""
        return worker_count(self.workers, self.device, self.nproc)

    def __str__(self) -> str:
        """The device and the workers, as a line of a plan."""
        return in_words(self.workers, self.device)


@dataclass(frozen=True)
class Job:
    """A checkpoint and its planned rows, which may compare it with an earlier checkpoint."""

    checkpoint: Path
    manifest: CheckpointManifest
    rows: Sequence[PlannedRow]
    before: Path | None = None

    @property
    def label(self) -> str:
        """The run and step of the checkpoint, for the lines of a plan."""
        return f"{self.manifest.run} step {self.manifest.step}"


class Plan(Protocol):
    """What an evaluation will do; made without torch, so that --dry-run is quick."""

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs, in the order of their rows."""
        ...

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        ...


def planned_rows(plan: Plan) -> list[PlannedRow]:
    """The rows of all jobs, in order."""
    return [row for job in plan.jobs for row in job.rows]


def read_checkpoints(checkpoints: Sequence[Path], run: str | None) -> dict[Path, RunCheckpoint]:
    """Each checkpoint's manifest and place in its run; `run`, if given, replaces the run names.

    Raises BadInput if a path is not a checkpoint.
    """
    manifests = [CheckpointManifest.read(path) for path in checkpoints]
    if run:
        manifests = [replace(one, run=run) for one in manifests]
    return dict(zip(checkpoints, run_checkpoints(manifests), strict=True))
