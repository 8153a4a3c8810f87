"""The running means and variances of batch norms, which count every batch once.

A batch norm updates them in each forward pass in train mode, by the images of that pass. A batch
that is encoded in parts, in micro-batches or by several processes, starts each part with the same
values, and continues with the average over the parts, weighted by their images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

import torch
from torch import nn

from vlcpctl.distributed.world import World
from vlcpctl.models.execution import BATCH_NORMS


@final
class RunningStatistics:
    """Those of all batch norms of a module, live."""

    def __init__(self, module: nn.Module) -> None:
        norms = [part for part in module.modules() if isinstance(part, BATCH_NORMS)]
        self._norms = [norm for norm in norms if norm.track_running_stats]
        both = [(norm.running_mean, norm.running_var) for norm in self._norms]
        self._values = [value for pair in both for value in pair if value is not None]
        counts = [norm.num_batches_tracked for norm in self._norms]
        self._counts = [count for count in counts if count is not None]

    @torch.no_grad()
    def averaged(self, parts: Sequence[slice]) -> Iterator[slice]:
        """Yield each part of a batch, to be encoded; after the last one they have counted once."""
        if not any(norm.training for norm in self._norms):
            yield from parts
            return
        live = [*self._values, *self._counts]
        before = [one.clone() for one in live]
        sums = [torch.zeros_like(one) for one in self._values]
        sizes = [part.stop - part.start for part in parts]
        shares = [size / sizes[0] for size in sizes]  # 1 if all are equal, which rounds nothing
        for part, share in zip(parts, shares, strict=True):
            torch._foreach_copy_(live, before)
            yield part
            torch._foreach_add_(sums, self._values, alpha=share)
        for value, total in zip(self._values, sums, strict=True):
            value.copy_(total.div_(sum(shares)))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block batch norms normalise as before, and count nothing."""
        for norm in self._norms:
            norm.track_running_stats = False
        try:
            yield
        finally:
            for norm in self._norms:
                norm.track_running_stats = True

    def share(self, world: World) -> None:
        """Continue with the average over all processes, so that they keep equal models."""
        if world.size > 1 and self._values:
            world.sum_(self._values)
            for value in self._values:
                value.div_(world.size)
