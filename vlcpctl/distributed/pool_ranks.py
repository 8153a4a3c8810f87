"""A pool of the processes that a launcher has started, such as torchrun, connected by gloo.

Also where they compute on GPUs: what they send each other are results on their way to files.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, final

import torch
import torch.distributed as dist

from vlcpctl.distributed.launch import enter_process, process_device
from vlcpctl.distributed.pool import Pool, joined
from vlcpctl.distributed.ranks import ProcessRanks
from vlcpctl.distributed.serving import Channel, serve
from vlcpctl.distributed.world import communicating, connect

_PATIENCE: Final = timedelta(days=365)  # between requests the first process may search for hours


def run_as_rank(ranks: ProcessRanks, device: str, run: Callable[[], None]) -> None:
    """Run a command in the first of the processes; the others compute their share of its items.

    Raises what the command raises, LostProcess if a process has ended, and UsageError if this
    machine has fewer GPUs than processes, or as `connect` does.
    """
    enter_process(ranks)
    own = process_device(device, ranks)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    connect("gloo", timeout=_PATIENCE)
    try:
        if ranks.rank > 0:
            serve(_Rank(0), str(own))
            return
        pool = Pool([_Rank(rank) for rank in range(1, ranks.size)])
        try:
            with joined(pool):
                run()
        finally:
            pool.close()
    finally:
        dist.destroy_process_group()


@final
class _Rank(Channel):
    """Messages to and from one rank of the process group."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def send(self, message: object) -> None:
        with communicating():
            dist.send_object_list([message], self._rank)

    def receive(self) -> Any:
        found: list[Any] = [None]
        with communicating():
            dist.recv_object_list(found, self._rank)
        return found[0]
