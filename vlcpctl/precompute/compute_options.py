"""How the work of `distill` and `invert-texts` is executed.

Torch is imported where it is used: commands that only plan stay fast.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.machine import in_words, worker_count
from vlcpctl.distributed.pool import Pool, pool_of


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How the work is executed; it changes the last bits of results at most."""

    batch_size: int
    device: str
    workers: int | None  # None: auto
    threads: int
    nproc: int  # processes that run the model

    def pool(self) -> AbstractContextManager[Pool]:
        """The processes, which run within the block."""
        from vlcpctl.models.imports import preload

        return pool_of(self.nproc, self.device, preload)

    @property
    def worker_count(self) -> int:
        """The number of processes that decode images; 0 decodes them in this process."""
        return worker_count(self.workers, self.device, self.nproc)

    def __str__(self) -> str:
        """The device and the workers, as a line of a plan."""
        return in_words(self.workers, self.device)

    def numeric(self) -> dict[str, Any]:
        """The facts that decide the last bits of the result."""
        from vlcpctl.core.devices import arithmetic_facts, torch_device

        facts = arithmetic_facts(torch_device(self.device))
        return {**facts, "threads": self.threads, "batch_size": self.batch_size}
