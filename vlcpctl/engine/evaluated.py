"""A checkpoint under evaluation: its model, loaded when it is first needed, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, Protocol, final

from vlcpctl.core.devices import torch_device
from vlcpctl.engine.evaluation_plan import Job, Means
from vlcpctl.eval.cells import Cell
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

Note = Callable[[dict[str, Any]], None]  # takes a timing


class Measure(Protocol):
    """What a protocol does with one checkpoint."""

    def measured(self, cell: Cell) -> dict[str, Any]:
        """The numbers of a row."""
        ...

    def save(self) -> None:
        """Write what the checkpoint made of the tasks to where the job says."""
        ...


@final
class Evaluated:
    """The checkpoint of one job, with the means to run it."""

    def __init__(self, job: Job, means: Means, note: Note) -> None:
        self.job, self.means, self.note = job, means, note

    @cached_property
    def encoder(self) -> Encoder:
        """The model in eval mode, on its device."""
        encoder = encoders.load(self.job.checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return encoder

    @property
    def fusion_encoder(self) -> FusionEncoder:
        """The same, of a checkpoint that the plan has found to be a fusion model."""
        encoder = self.encoder
        assert encoder.family == "fusion"
        return encoder

    @contextmanager
    def timed(self, what: str, **fields: Any) -> Iterator[None]:
        """Note how long the block took."""
        started = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - started, 4)
        about = {"run": self.job.manifest["run"], "step": self.job.manifest["step"], "what": what}
        self.note({**about, **fields, "seconds": seconds})

    def searching(self, cell: Cell) -> AbstractContextManager[None]:
        """The clock of a search."""
        return self.timed("search", gallery=cell.fields["gallery"], tasks=cell.fields["tasks"])
