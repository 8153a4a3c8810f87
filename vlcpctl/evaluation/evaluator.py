"""What all evaluations share: an evaluator, the plan of its rows, and how these are measured.

Torch-free until a model is loaded, so that --dry-run and refusals are quick.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from vlcpctl import __version__
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import UsageError
from vlcpctl.core.machine import free_memory, has_tf32, in_words, is_gpu, worker_count
from vlcpctl.distributed.pool import ALONE, Compute, Pool, pool_of
from vlcpctl.evaluation.embedding_cache import EmbeddingCache
from vlcpctl.evaluation.membership import RunCheckpoint, run_checkpoints
from vlcpctl.evaluation.rank_files import RankFile
from vlcpctl.evaluation.rows import Row
from vlcpctl.files.ids import content_id
from vlcpctl.files.parts import MissingShard, Parts, Result, refuse_parts

if TYPE_CHECKING:  # they import torch
    from vlcpctl.data.loading.eval_batches import Kept
    from vlcpctl.models.encoders import Encoder, SavedEncoder

FP32 = "fp32"
_SHARE = 4  # of free memory, views of images take one part in so many
Note = Callable[[dict[str, Any]], object]  # called with each timing
Value = TypeVar("Value")


@dataclass(kw_only=True)
class Evaluator(ABC):
    """One kind of evaluation; its fields are its options.

    A new one needs `plan` and `measure`, and a command that makes it. `plan` must not import torch.
    """

    checkpoints: tuple[Path, ...]
    run: str | None = None  # in rows, in place of the names of the checkpoints' runs
    limit: int | None = None  # how many samples of a split are used; None: all
    timings: Path | None = None  # a file for them
    save_ranks: Path | None = None
    out: Path | None = None  # of the rows
    force: bool = False
    shards: Parts | None = None  # of what is embedded and searched
    # How models are run; but for the precision, rows do not depend on it.
    device: str = "auto"
    precision: str = FP32
    tf32: bool = False
    batch_size: int = 256
    workers: int | None = None  # None: auto
    nproc: int = 1  # processes that embed
    embedding_cache: Path | None = None

    # What is open while rows are measured.
    pool: Pool = field(default=ALONE, init=False)
    cache: EmbeddingCache | None = field(default=None, init=False)
    note: Note = field(default_factory=lambda: lambda _: None, init=False)
    ranks: RankFile | None = field(default=None, init=False)  # those still to be saved
    embeds_share: bool = field(default=False, init=False)  # of a shard
    _room: int = field(default=0, init=False)  # bytes of views of images that a process keeps

    @abstractmethod
    def plan(self) -> list[Session]:
        """What is to be measured, after checking the options and the inputs.

        Raises UsageError for options that do not fit, BadInput for unusable data or checkpoints.
        """

    @abstractmethod
    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """The measured fields of a row, by name, for the checkpoint of the session."""

    def finish(self, session: Session) -> None:
        """Called after the last row of a checkpoint; does nothing unless overridden."""
        return

    def embedded(self) -> dict[str, Any]:
        """The identity of what shards embed."""
        raise NotImplementedError

    def embed(self, session: Session) -> None:
        """Embed what the rows of the session's checkpoint need, and measure nothing."""
        raise NotImplementedError

    def search(self, session: Session) -> None:
        """Store a shard's share of what the rows are measured from; nothing unless overridden."""
        return

    def read_checkpoints(self) -> dict[Path, RunCheckpoint]:
        """Each checkpoint's manifest and its place in its run.

        Raises BadInput if a path is not a checkpoint.
        """
        manifests = [CheckpointManifest.read(path) for path in self.checkpoints]
        if self.run:
            manifests = [replace(one, run=self.run) for one in manifests]
        return dict(zip(self.checkpoints, run_checkpoints(manifests), strict=True))

    def arithmetic_options(self) -> dict[str, Any]:
        """Those options of a row that say in which precision models are run, if not in float32.

        Raises UsageError for what the device does not have.
        """
        if self.tf32 and not (is_gpu(self.device) and has_tf32()):
            raise UsageError("--tf32 has no effect: the device is no GPU with TF32")
        if self.tf32 and self.precision != FP32:
            raise UsageError(f"--tf32 has no effect with --precision {self.precision}")
        usual = {"precision": FP32, "tf32": False}
        return {name: vars(self)[name] for name in usual if vars(self)[name] != usual[name]}

    @property
    def worker_count(self) -> int:
        """The number of processes that decode images; 0 decodes them in this process."""
        return worker_count(self.workers, self.device, self.nproc)

    def numeric(self) -> dict[str, Any]:
        """What decides the last bits of embeddings.

        Those are the machine, the number of threads, the size of batches and the precision.
        """
        import torch

        from vlcpctl.core.devices import arithmetic_facts, torch_device

        return {
            **arithmetic_facts(torch_device(self.device)),
            "threads": torch.get_num_threads(),
            "matmul": torch.get_float32_matmul_precision(),
            "vlcpctl": __version__,
            "batch_size": self.batch_size,
            **self.arithmetic_options(),
        }

    @contextmanager
    def started(self) -> Iterator[None]:
        """Within the block, the processes run, and the cache is open."""
        from vlcpctl.data.loading.eval_batches import drop_kept
        from vlcpctl.models.imports import preload

        if self.embedding_cache is not None:
            self.cache = EmbeddingCache(self.embedding_cache)
        if len(self.checkpoints) > 1:
            self._room = free_memory() // _SHARE // self.nproc
        with pool_of(self.nproc, self.device, preload) as self.pool:
            try:
                yield
            finally:
                drop_kept()

    def kept(self, about: Mapping[str, Any]) -> Kept | None:
        """How the views of images that `about` identifies are kept for the next checkpoint."""
        if not self._room:
            return None
        from vlcpctl.data.loading.eval_batches import Kept

        return Kept(content_id({**about, "batch_size": self.batch_size}), self._room)


@final
class Session:
    """A checkpoint of an evaluation: its rows, what was computed with it, and how to compute more.

    `embeddings` is the directory where its embeddings are still to be saved, if any.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        checkpoint: Path,
        manifest: CheckpointManifest,
        rows: Sequence[Row] = (),
    ) -> None:
        self.evaluator, self.checkpoint, self.manifest = evaluator, checkpoint, manifest
        self.rows = rows
        self.embeddings: Path | None = None
        self._kept: dict[Hashable, Any] = {}

    @property
    def largest(self) -> Row:
        """The row of the most tasks."""
        return max(self.rows, key=lambda one: len(one.tasks))

    @cached_property
    def encoder(self) -> Encoder:
        """The model of the checkpoint in eval mode on the device, loaded at first use."""
        return self.evaluator.pool.load(self._source, self.evaluator.device)

    @property
    def _source(self) -> SavedEncoder:
        from vlcpctl.models.encoders import SavedEncoder

        return SavedEncoder(self.checkpoint, self.evaluator.precision, self.evaluator.tf32)

    def results(self, compute: Compute[Encoder, Value], numbers: Sequence[int]) -> Iterator[Value]:
        """The results of items computed with the model, in order, by all processes of the pool."""
        return self.evaluator.pool.results(self._source, self.encoder, compute, numbers)

    def shared(
        self, about: Mapping[str, Any], count: int, find: Callable[[range], Result]
    ) -> Result | None:
        """What `find` finds for queries in these rows, of all `count`; see `Parts.shared`.

        `about` says what is searched by the model, and for what.
        """
        shards = self.evaluator.shards
        if shards is None:
            return find(range(count))
        return shards.shared({"checkpoint": self.manifest.content, **about}, count, find)

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `make` at the first call with this key, kept for the later ones."""
        if key not in self._kept:
            self._kept[key] = make()
        value: Value = self._kept[key]
        return value

    def drop(self) -> None:
        """Drop the model, and what was computed with it."""
        self._kept.clear()
        self.drop_model()

    def drop_model(self) -> None:
        """Drop the model alone."""
        vars(self).pop("encoder", None)

    @contextmanager
    def timed(self, what: str, **fields: Any) -> Iterator[None]:
        """Report how many seconds the block took, with these fields."""
        started = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - started, 4)
        about = {"run": self.manifest.run, "step": self.manifest.step, "what": what}
        self.evaluator.note({**about, **fields, "seconds": seconds})


def plan_lines(evaluator: Evaluator, sessions: Iterable[Session]) -> Iterator[str]:
    """A plan as lines of text."""
    yield in_words(evaluator.workers, evaluator.device)
    if (several := len(evaluator.checkpoints)) > 1:
        yield f"images decoded once for {several} checkpoints, within 1/{_SHARE} of free memory"
    for session in sessions:
        label = f"{session.manifest.run} step {session.manifest.step}"
        for row in session.rows:
            about, since = row.fields, row.fields.get("since")
            then = f" since {since['run']} step {since['step']}" if since else ""
            tasks = ", ".join(about["tasks"])
            yield f"{label}{then}: {about['gallery']} gallery of {tasks}"
        if session.embeddings is not None:
            yield f"{label}: embeddings to {session.embeddings}"
    if evaluator.ranks is not None:
        yield f"ranks to {evaluator.ranks.out}"


def evaluate(evaluator: Evaluator, sessions: Sequence[Session]) -> Iterator[dict[str, Any]]:
    """Yield each row as soon as it is measured, within `Evaluator.started`.

    Each checkpoint is loaded once, and its rows are measured in order. Raises what the evaluator
    raises: Diverged for non-finite embeddings, for instance.
    """
    for session in sessions:
        for row in session.rows:
            yield row.complete(evaluator.measure(session, row))
        evaluator.finish(session)
        session.drop()


def shards_before_rows(evaluator: Evaluator, sessions: Sequence[Session]) -> bool:
    """Whether the rows can be measured now; if not, this command has made its shard for them.

    It has embedded the share of its shard, and searched it if that was complete before. Raises
    OutputExists if shards of something else are beside the rows, BadInput if one that is to be
    joined is missing, and as `evaluate` does.
    """
    shards = evaluator.shards
    if shards is None:
        if evaluator.out is not None and not evaluator.force:
            refuse_parts(evaluator.out)
        return True
    identity, numeric = evaluator.embedded(), evaluator.numeric()
    if shards.index is None:
        shards.check(identity, numeric)
        return True
    with shards.claimed(identity, numeric), evaluator.started():
        evaluator.embeds_share = True
        for session in sessions:
            evaluator.embed(session)
            session.drop()
        if shards.complete():  # before this command
            evaluator.embeds_share = False
            try:
                for session in sessions:
                    evaluator.search(session)
            except MissingShard as error:
                say(f"nothing to search yet: {error}")
        say(f"{shards.out}: shard {shards.index} of {shards.count} is complete")
    return False
