"""The processes that train together: their ranks, gathering features, summing gradients.

All of them must call the same methods in the same order, or they wait for each other forever.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor

from vlcpctl.core.errors import UsageError, VlcpError, first_line
from vlcpctl.distributed.ranks import ProcessRanks


class LostProcess(VlcpError):
    """Another process of the run has ended; its own error has the reason."""


@dataclass(frozen=True)
class World:
    """One process of `size`; a world of one needs no communication."""

    rank: int = 0
    size: int = 1

    def slice_of(self, count: int) -> slice:
        """The part of a global batch of `count` pairs that this process encodes."""
        share = count // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def gather(self, local: Tensor) -> Tensor:
        """The rows of all processes in order of rank: (n, ...) each becomes (size * n, ...).

        Every process must have the same shape; the result has no gradient.
        """
        if self.size == 1:
            return local
        parts = [torch.empty_like(local) for _ in range(self.size)]
        with communicating():
            dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Sum tensors over processes, in place; raises LostProcess if another one has ended."""
        if self.size == 1:
            return
        # One message for all neighbours of a dtype: hundreds of small all-reduces would wait for
        # the network hundreds of times. Elements are summed by place alone, so every process must
        # pass the same shapes in the same order.
        for _, group in groupby(tensors, key=lambda tensor: tensor.dtype):
            same_dtype = list(group)
            flat = torch.cat([tensor.reshape(-1) for tensor in same_dtype])
            with communicating():
                dist.all_reduce(flat)
            sizes = [tensor.numel() for tensor in same_dtype]
            for tensor, part in zip(same_dtype, flat.split(sizes), strict=True):
                tensor.copy_(part.view_as(tensor))

    def start_sum(self, flat: Tensor) -> Callable[[], None]:
        """Start to sum a tensor over processes, in place, and return at once.

        Calling the result waits for the sum. All processes must start their sums in the same order.
        Both raise LostProcess if another process has ended.
        """
        with communicating():
            work = dist.all_reduce(flat, async_op=True)

        def wait() -> None:
            with communicating():
                work.wait()

        return wait

    def sum_own(self, rows: Tensor) -> Tensor:
        """This process's rows (n, ...) of the sum over processes of `rows` (size * n, ...).

        Raises LostProcess if another process has ended.
        """
        if self.size == 1:
            return rows
        own = torch.empty_like(
            rows[self.slice_of(len(rows))], memory_format=torch.contiguous_format
        )
        with communicating():
            dist.reduce_scatter_tensor(own, rows.contiguous())
        return own

    def any(self, flags: Sequence[bool], device: torch.device) -> list[bool]:
        """For each flag, whether it is set in at least one process."""
        if self.size == 1:
            return list(flags)
        agreed = torch.tensor(flags, dtype=torch.int32, device=device)
        with communicating():
            dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return [bool(flag) for flag in agreed.tolist()]

    def from_rank_0(self, values: Mapping[str, float], device: torch.device) -> dict[str, float]:
        """The values of rank 0, so that all processes decide alike; the names must agree."""
        if self.size == 1:
            return dict(values)
        # float64 carries a Python float unchanged.
        sent = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
        with communicating():
            dist.broadcast(sent, src=0)
        return dict(zip(values, sent.tolist(), strict=True))

    def numbers_of_rank_0(self, numbers: Tensor, device: torch.device) -> list[int]:
        """The whole numbers (n,) of rank 0; n must be the same in all processes."""
        sent = numbers.to(device)
        if self.size > 1:
            with communicating():
                dist.broadcast(sent, src=0)
        return [int(number) for number in sent.tolist()]

    def barrier(self) -> None:
        """Wait until every process has called this."""
        if self.size > 1:
            with communicating():
                dist.barrier()


@contextmanager
def join_processes(ranks: ProcessRanks, device: torch.device) -> Iterator[World]:
    """The world of the processes that a launcher started, once all of them have joined.

    Raises what `connecting` raises.
    """
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    with connecting():
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    try:
        world = World(ranks.rank, ranks.size)
        yield world
        gc.collect()  # tensors that outlive their group can abort the process at its exit
        world.barrier()
    finally:
        dist.destroy_process_group()


@contextmanager
def connecting() -> Iterator[None]:
    """Within the block, processes that a launcher started find each other by the environment.

    Raises LostProcess if they cannot connect, and UsageError if it does not have the address of the
    first one.
    """
    try:
        with communicating():
            yield
    except ValueError as error:
        raise UsageError(
            f"cannot connect to the other processes: {first_line(error)}; start vlcpctl with a "
            "launcher such as torchrun, or unset RANK and WORLD_SIZE"
        ) from error


@contextmanager
def communicating() -> Iterator[None]:
    """Within the block, raise LostProcess for an error of torch's communication."""
    try:
        yield
    except RuntimeError as error:  # gloo raises it bare; NCCL's DistBackendError is one
        reason = first_line(error)
        raise LostProcess(f"another process of the run has ended ({reason})") from error
