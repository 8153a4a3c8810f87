"""train-step in one process or several; what needs no torch is done before it is imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vlcpctl.core import console
from vlcpctl.distributed.ranks import ProcessRanks, process_ranks
from vlcpctl.files.ids import content_id
from vlcpctl.files.locks import patience, set_patience
from vlcpctl.training.plan import TrainPlan, announced
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.state import ResumeDirectory


def train(request: TrainRequest, *, quiet: bool = False) -> Path | None:
    """Train in `request.nproc` processes.

    Returns the checkpoint's path in the one process that should print it, else None. Raises what
    `train_step` raises, and ProcessFailed or VlcpError if processes fail or cannot meet.
    """
    ranks = process_ranks()
    if ranks is not None and ranks.size > 1:
        take_part(request, ranks)
        return request.out if ranks.rank == 0 else None
    partial = ResumeDirectory(request.out)
    with partial.output.locked():
        plan = announced(request, says=request.nproc == 1)
        if plan is None:
            partial.remove()
            return request.out
        if request.nproc == 1:
            from vlcpctl.training.train_step import train_planned

            train_planned(plan)
            return request.out
    # Without the lock: rank 0 takes it, so that it is held for as long as there is a writer, not
    # for as long as there is a launcher.
    return request.out if _leads_among(plan, quiet=quiet) else None


def _leads_among(plan: TrainPlan, *, quiet: bool) -> bool:
    """Start the processes of this machine, and wait for them; whether rank 0 was among them."""
    from vlcpctl.distributed.launch import Launch, start_method, start_processes
    from vlcpctl.models.imports import preload

    request = plan.request
    method = start_method(request.device)
    if method == "fork":
        preload()
    launch = Launch(
        nproc=request.nproc,
        method=method,
        run_id=content_id(plan.identity),
        nodes=request.nodes,
        rendezvous=request.rendezvous,
    )
    return 0 in start_processes(launch, run_process, request, quiet, patience())


def take_part(request: TrainRequest, ranks: ProcessRanks) -> None:
    """Train as one of the processes that a launcher started; only rank 0 prints."""
    from vlcpctl.distributed.launch import enter_process, process_device
    from vlcpctl.distributed.world import join_processes
    from vlcpctl.training.train_step import train_step

    enter_process(ranks)
    device = process_device(request.device, ranks)
    with join_processes(ranks, device) as world:
        train_step(replace(request, device=str(device)), world=world)


def run_process(request: TrainRequest, quiet: bool, wait_s: float = 0.0) -> None:
    """The entry point of processes that `train` starts; `wait_s` is --wait.

    An error is passed to the launcher in a file, and its exit code becomes the process's.
    """
    from vlcpctl.distributed.launch import reporting_errors

    ranks = process_ranks()
    assert ranks is not None
    console.set_quiet(quiet)
    set_patience(wait_s)
    with reporting_errors():
        take_part(request, ranks)
