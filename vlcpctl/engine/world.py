"""The processes that train together: who am I, gather features, sum gradients, agree on a flag."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """One process of `size`; a world of one needs no communication."""

    rank: int = 0
    size: int = 1

    def slice_of(self, count: int) -> slice:
        """The part of a global batch that this process encodes."""
        share = count // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def gather(self, local: Tensor) -> Tensor:
        """The rows of all processes, in the order of their ranks; without gradient."""
        if self.size == 1:
            return local
        parts = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Sum over processes, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set on some process."""
        if self.size == 1:
            return flag
        agreed = torch.tensor(int(flag), device=device)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return bool(agreed)

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()
