"""How the work of `distill` and `invert-texts` is executed.

Torch is imported where it is used: commands that only plan stay fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from vlcpctl.core.machine import in_words, worker_count
from vlcpctl.distributed.pool import ALONE, Pool, pool_of


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How the work is executed; it changes the last bits of results at most."""

    batch_size: int
    device: str
    workers: int | None  # None: auto
    threads: int
    nproc: int = 1  # processes that run the model
    pool: Pool = ALONE  # these processes, while parts are computed

    @contextmanager
    def with_pool(self) -> Iterator[ComputeOptions]:
        """Within the block, the processes run; yields these options with their pool."""
        from vlcpctl.models.imports import preload

        with pool_of(self.nproc, self.device, preload) as pool:
            yield replace(self, pool=pool)

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

        return {
            **arithmetic_facts(torch_device(self.device)),
            "threads": self.threads,
            "batch_size": self.batch_size,
        }
