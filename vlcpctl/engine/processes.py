"""How many processes train together, and which of them this one is. Torch-free."""

from __future__ import annotations

import os
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.engine.request import Request


@dataclass(frozen=True)
class Place:
    """One of `size` processes; `local` counts those of its machine."""

    rank: int
    size: int
    local: int


def place() -> Place | None:
    """Where a launcher such as torchrun put this process; None when none started it."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return Place(rank, size, int(os.environ.get("LOCAL_RANK", "0")))


def processes(asked: int | None) -> int:
    """What --nproc asks for, or as many as a launcher has started; the two must agree."""
    here = place()
    if here is None:
        return asked or 1
    if asked not in (None, here.size):
        raise UsageError(
            f"--nproc {asked}: a launcher has started {here.size} processes (WORLD_SIZE); "
            "leave out --nproc, or start vlcpctl without the launcher"
        )
    return here.size


def check_processes(request: Request) -> None:
    """Refuse a batch or machines that the processes cannot share evenly."""
    size, nproc, nodes = request.settings.batch_size, request.nproc, request.nodes
    if size % nproc:
        raise UsageError(
            f"--batch-size {size} does not divide among {nproc} processes; "
            f"{size - size % nproc or nproc} does"
        )
    if nproc % nodes:
        raise UsageError(f"--nproc {nproc} does not divide among --nodes {nodes}")
    if nodes > 1 and not request.rendezvous:
        raise UsageError(f"--nodes {nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if nodes == 1 and request.rendezvous:
        raise UsageError(f"--rendezvous {request.rendezvous} has no effect without --nodes")
