"""A checkpoint under evaluation: its model, loaded at first use, its embeddings, and timings."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, final

from vlcpctl.distributed.serving import Work
from vlcpctl.evaluation.jobs import Compute, Job
from vlcpctl.evaluation.planned_rows import PlannedRow
from vlcpctl.models.encoders import Encoder, SavedEncoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Note = Callable[[dict[str, Any]], object]  # called with each timing
Value = TypeVar("Value")


@final
class Session:
    """The checkpoint of one job, what was computed with it, and how to compute more."""

    def __init__(self, job: Job, compute: Compute, note: Note) -> None:
        self.job, self.compute, self.note = job, compute, note
        self._kept: dict[Hashable, Any] = {}

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return self.job.checkpoint

    @property
    def source(self) -> SavedEncoder:
        """The model as the processes of a pool load it."""
        return SavedEncoder(self.checkpoint)

    @cached_property
    def encoder(self) -> Encoder:
        """The model in eval mode, on its device."""
        return self.compute.pool.load(self.source, self.compute.device)

    def results(self, work: Work[Encoder, Value], count: int) -> Iterator[Value]:
        """The results of `count` items of work with the model, by all processes of the pool."""
        return self.compute.pool.results(self.source, self.encoder, work, range(count))

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
