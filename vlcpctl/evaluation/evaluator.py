"""What all evaluations share: an evaluator, the plan of its rows, and how these are measured.

Torch-free until a model is loaded, so that --dry-run and refusals are quick.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.machine import in_words, worker_count
from vlcpctl.distributed.pool import ALONE, Pool, pool_of
from vlcpctl.distributed.serving import Work
from vlcpctl.evaluation.embedding_cache import EmbeddingCache, arithmetic
from vlcpctl.evaluation.membership import RunCheckpoint, run_checkpoints
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.evaluation.rank_files import RankFile
from vlcpctl.files.parts import MissingShard, Parts, Result, refuse_parts

if TYPE_CHECKING:  # they import torch
    from vlcpctl.models.encoders import Encoder
    from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Note = Callable[[dict[str, Any]], object]  # called with each timing
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """One kind of evaluation; its fields are its options.

    A new one needs `plan` and `measure`, and a command that makes it. `plan` must not import torch.
    """

    checkpoints: tuple[Path, ...]
    run: str | None = None  # in rows, in place of the names of the checkpoints' runs
    limit: int | None = None  # how many samples of a split are used; None: all
    timings: Path | None = None  # a file for them

    queries: ClassVar[str] = "query"  # what --save-ranks has a row for

    @abstractmethod
    def plan(self) -> Plan:
        """What is to be measured, after checking the options and the inputs.

        Raises UsageError for options that do not fit, BadInput for unusable data or checkpoints.
        """

    @abstractmethod
    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """The measured fields of a row, by name, for the checkpoint of the session."""

    def finish(self, session: Session) -> None:
        """Called after the last row of a checkpoint; does nothing unless overridden."""
        return

    def line(self, job: Job, row: PlannedRow) -> str:
        """A row of a job as a line of the plan."""
        return f"{job.label}: {row.fields['task']}"

    def read_checkpoints(self) -> dict[Path, RunCheckpoint]:
        """Each checkpoint's manifest and its place in its run.

        Raises BadInput if a path is not a checkpoint.
        """
        manifests = [CheckpointManifest.read(path) for path in self.checkpoints]
        if self.run:
            manifests = [replace(one, run=self.run) for one in manifests]
        return dict(zip(self.checkpoints, run_checkpoints(manifests), strict=True))


@dataclass(frozen=True, kw_only=True)
class ShardedEvaluator(Evaluator):
    """An evaluation whose embedding several commands can share."""

    shards: Parts | None = None

    @abstractmethod
    def embedded(self) -> dict[str, Any]:
        """The identity of what is embedded."""

    @abstractmethod
    def embed(self, session: Session) -> None:
        """Embed what the rows of the session's checkpoint need, and measure nothing."""

    def search(self, session: Session) -> bool:
        """Store a shard's share of what the rows of the session's checkpoint are measured from.

        Whether there is any such work; there is none unless it is overridden.
        """
        return False


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


@dataclass(frozen=True)
class Plan:
    """What an evaluation will do: jobs in the order of their rows, and files besides the rows.

    `ranks` and the directories of `embeddings`, by checkpoint, are those that are still to be made.
    """

    evaluator: Evaluator
    jobs: Sequence[Job]
    ranks: RankFile | None = None
    embeddings: Mapping[Path, Path] = field(default_factory=dict)

    @property
    def rows(self) -> list[PlannedRow]:
        """The rows of all jobs, in order."""
        return [row for job in self.jobs for row in job.rows]

    @property
    def has_more(self) -> bool:
        """Whether more than rows is to be made."""
        return self.ranks is not None or bool(self.embeddings)

    def lines(self) -> Iterator[str]:
        """The plan as lines of text."""
        for job in self.jobs:
            yield from (self.evaluator.line(job, row) for row in job.rows)
            if job.checkpoint in self.embeddings:
                yield f"{job.label}: embeddings to {self.embeddings[job.checkpoint]}"
        if self.ranks is not None:
            yield f"ranks of every {self.evaluator.queries} to {self.ranks.out}"


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How the models are run; rows do not depend on it."""

    device: str
    batch_size: int
    workers: int | None  # None: auto
    nproc: int = 1  # processes that embed
    pool: Pool = ALONE  # these processes, while rows are measured
    embedding_cache: Path | None = None
    cache: EmbeddingCache | None = None  # in that directory, while rows are measured
    shards: Parts | None = None  # of what is embedded and searched
    is_embedded: bool = False  # and the shards have it, so that a shard searches

    @property
    def embeds_share(self) -> bool:
        """Whether this is a shard that embeds its share."""
        return self._has_share and not self.is_embedded

    @property
    def searches_share(self) -> bool:
        """Whether this is a shard that searches its share."""
        return self._has_share and self.is_embedded

    @property
    def _has_share(self) -> bool:
        return self.shards is not None and self.shards.index is not None

    @property
    def worker_count(self) -> int:
        """The number of processes that decode images; 0 decodes them in this process."""
        return worker_count(self.workers, self.device, self.nproc)

    def numeric(self) -> dict[str, Any]:
        """The facts that decide the last bits of embeddings."""
        return {"batch_size": self.batch_size, **arithmetic(self.device)}

    def __str__(self) -> str:
        """The device and the workers, as a line of a plan."""
        return in_words(self.workers, self.device)

    @contextmanager
    def started(self) -> Iterator[Compute]:
        """Within the block, the processes run; yields the same with them and the cache."""
        from vlcpctl.models.imports import preload

        cache = None if self.embedding_cache is None else EmbeddingCache(self.embedding_cache)
        with pool_of(self.nproc, self.device, preload) as pool:
            yield replace(self, pool=pool, cache=cache)


@final
class Session:
    """The checkpoint of one job, what was computed with it, and how to compute more."""

    def __init__(self, plan: Plan, job: Job, compute: Compute, note: Note) -> None:
        self.plan, self.job, self.compute, self.note = plan, job, compute, note
        self._kept: dict[Hashable, Any] = {}

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return self.job.checkpoint

    @cached_property
    def encoder(self) -> Encoder:
        """The model of the checkpoint, loaded at first use."""
        return self.load(self.checkpoint)

    def load(self, checkpoint: Path) -> Encoder:
        """The model of a checkpoint in eval mode, on the device."""
        from vlcpctl.models.encoders import SavedEncoder

        return self.compute.pool.load(SavedEncoder(checkpoint), self.compute.device)

    def results(self, work: Work[Encoder, Value], numbers: Sequence[int]) -> Iterator[Value]:
        """The results of items of work with the model, in order, by all processes of the pool."""
        from vlcpctl.models.encoders import SavedEncoder

        source = SavedEncoder(self.checkpoint)
        return self.compute.pool.results(source, self.encoder, work, numbers)

    def shared(
        self, about: Mapping[str, Any], count: int, find: Callable[[range], Result]
    ) -> Result | None:
        """What `find` finds for queries in these rows, of all `count`; see `Parts.shared`.

        `about` says what is searched by the model, and for what.
        """
        shards = self.compute.shards
        if shards is None:
            return find(range(count))
        return shards.shared({"checkpoint": self.job.manifest.content, **about}, count, find)

    @property
    def fusion_encoder(self) -> FusionEncoder:
        """The model as a fusion model; the plan has refused any other."""
        encoder = self.encoder
        assert encoder.family == "fusion"
        return encoder

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `make` at the first call with this key, kept for the later ones."""
        if key not in self._kept:
            self._kept[key] = make()
        value: Value = self._kept[key]
        return value

    @contextmanager
    def timed(self, what: str, **fields: Any) -> Iterator[None]:
        """Report how many seconds the block took, with these fields."""
        started = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - started, 4)
        about = {"run": self.job.manifest.run, "step": self.job.manifest.step, "what": what}
        self.note({**about, **fields, "seconds": seconds})

    def timed_search(self, row: PlannedRow) -> AbstractContextManager[None]:
        """Time the search of a row."""
        return self.timed("search", gallery=row.fields["gallery"], tasks=row.fields["tasks"])


def evaluate(plan: Plan, compute: Compute, note: Note = lambda _: None) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured; `note` is called with timings.

    Each checkpoint is loaded once, and its rows are measured in order. Raises what the evaluator
    raises: Diverged for non-finite embeddings, for instance.
    """
    for job in plan.jobs:
        session = Session(plan, job, compute, note)
        for row in job.rows:
            yield row.complete(plan.evaluator.measure(session, row))
        plan.evaluator.finish(session)


def shards_before_rows(plan: Plan, compute: Compute, out: Path | None, *, force: bool) -> bool:
    """Whether the rows can be measured now; if not, this command has made its shard for them.

    It has embedded the share of its shard, and searched it if that was complete before. Raises
    OutputExists if shards of something else are beside the rows, BadInput if one that is to be
    joined is missing, and as `evaluate` does.
    """
    evaluator, shards = plan.evaluator, compute.shards
    if shards is None:
        if out is not None and not force:
            refuse_parts(out)
        return True
    assert isinstance(evaluator, ShardedEvaluator), "no other has shards"
    identity = evaluator.embedded()
    if shards.index is None:
        shards.check(identity, compute.numeric())
        return True
    with shards.claimed(identity, compute.numeric()), compute.started() as started:
        for job in plan.jobs:
            evaluator.embed(Session(plan, job, started, lambda _: None))
        was_complete = shards.complete()
        say(f"{shards.out}: shard {shards.index} of {shards.count} is complete")
        if was_complete:
            _search_share(plan, replace(started, is_embedded=True), shards)
    return False


def _search_share(plan: Plan, compute: Compute, shards: Parts) -> None:
    """Search the share of a shard that has embedded its own, once all others have, too."""
    evaluator = plan.evaluator
    assert isinstance(evaluator, ShardedEvaluator), "no other has shards"
    try:
        sessions = (Session(plan, job, compute, lambda _: None) for job in plan.jobs)
        has_searched = [evaluator.search(session) for session in sessions]
    except MissingShard as error:
        say(f"nothing to search yet: {error}")
        return
    if any(has_searched):
        say(f"{shards.out}: shard {shards.index} of {shards.count} has searched its share")
