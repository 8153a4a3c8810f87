"""train-step in one process or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vlcpctl.core import console
from vlcpctl.distributed.launch import (
    Launch,
    enter_process,
    process_device,
    reporting_errors,
    start_method,
    start_processes,
)
from vlcpctl.distributed.ranks import ProcessRanks, process_ranks
from vlcpctl.distributed.world import join_processes
from vlcpctl.files.ids import content_id
from vlcpctl.files.locks import patience, set_patience
from vlcpctl.files.outputs import Output
from vlcpctl.models.imports import preload
from vlcpctl.training.adaptation import adapted
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.identity import already_trained, semantic
from vlcpctl.training.plan import make_plan
from vlcpctl.training.train_step import train_step


def train(request: TrainRequest, *, quiet: bool = False) -> Path | None:
    """Train in `request.nproc` processes.

    Returns the checkpoint's path in the one process that should print it, else None. Raises what
    `train_step` raises, and ProcessFailed or VlcpError if processes fail or cannot meet.
    """
    ranks = process_ranks()
    if ranks is not None and ranks.size > 1:
        take_part(request, ranks)
        return request.out if ranks.rank == 0 else None
    if request.nproc > 1:
        return _launch(request, quiet=quiet)
    return train_step(request)


def _launch(request: TrainRequest, *, quiet: bool) -> Path | None:
    request = adapted(request)
    identity = semantic(request)
    # Rank 0 takes the lock again, so that it is held for as long as there is a writer, not for as
    # long as there is a launcher.
    with Output(request.out).locked():
        is_made = already_trained(request, identity)
    if is_made:
        return request.out
    make_plan(request)  # so that wrong input gives one error, before any process starts
    method = start_method(request.device)
    if method == "fork":
        preload()
    launch = Launch(
        nproc=request.nproc,
        method=method,
        run_id=content_id(identity),
        nodes=request.nodes,
        rendezvous=request.rendezvous,
    )
    results = start_processes(launch, run_process, request, quiet, patience())
    return request.out if 0 in results else None


def take_part(request: TrainRequest, ranks: ProcessRanks) -> None:
    """Train as one of the processes that a launcher started; only rank 0 prints."""
    enter_process(ranks)
    device = process_device(request.device, ranks)
    with join_processes(ranks, device) as world:
        train_step(replace(request, device=str(device)), world=world)


def run_process(request: TrainRequest, quiet: bool, wait_s: float = 0.0) -> None:
    """The entry point of processes that `train` starts; `wait_s` is --wait.

    An error is passed to the launcher in a file, and its exit code becomes the process's.
    """
    ranks = process_ranks()
    assert ranks is not None
    console.set_quiet(quiet)
    set_patience(wait_s)
    with reporting_errors():
        take_part(request, ranks)
