"""A checkpoint under evaluation: its model, loaded at first use, and timings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, Protocol, final

from vlcpctl.core.devices import torch_device
from vlcpctl.evaluation.jobs import RetrievalJob, SearchCompute
from vlcpctl.evaluation.planned_rows import Cell
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Note = Callable[[dict[str, Any]], None]  # called with each timing


class Measure(Protocol):
    """What a retrieval protocol computes for one checkpoint."""

    def measured(self, cell: Cell) -> dict[str, Any]:
        """The measured fields of a row, by name."""
        ...

    def save(self) -> None:
        """Write the embeddings of all tasks to the job's directory."""
        ...


@final
class Evaluated:
    """The checkpoint of one job, its model, and the options to run it with."""

    def __init__(self, job: RetrievalJob, means: SearchCompute, note: Note) -> None:
        self.job, self.means, self.note = job, means, note

    @cached_property
    def encoder(self) -> Encoder:
        """The model in eval mode, on its device."""
        encoder = encoders.load(self.job.checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return encoder

    @property
    def fusion_encoder(self) -> FusionEncoder:
        """The model as a fusion model; the plan has refused any other."""
        encoder = self.encoder
        assert encoder.family == "fusion"
        return encoder

    @contextmanager
    def timed(self, what: str, **fields: Any) -> Iterator[None]:
        """Report how many seconds the block took, with these fields."""
        started = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - started, 4)
        about = {"run": self.job.manifest["run"], "step": self.job.manifest["step"], "what": what}
        self.note({**about, **fields, "seconds": seconds})

    def searching(self, cell: Cell) -> AbstractContextManager[None]:
        """Time the search of a row."""
        return self.timed("search", gallery=cell.fields["gallery"], tasks=cell.fields["tasks"])
