"""train-step in one process or several; torch's elastic launcher starts and supervises them."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vlcpctl.core import console
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import UsageError, VlcpError, debugging
from vlcpctl.core.hashing import content_id
from vlcpctl.core.locks import patience, set_patience
from vlcpctl.core.staging import Staging
from vlcpctl.distributed.ranks import ProcessRanks, process_ranks
from vlcpctl.distributed.signals import forward_signals
from vlcpctl.distributed.world import LostProcess, join_processes
from vlcpctl.models.imports import preload
from vlcpctl.training.adaptation.adapted import adapted
from vlcpctl.training.config.request import Request
from vlcpctl.training.identity import already_trained, semantic
from vlcpctl.training.plan import make_plan
from vlcpctl.training.train_step import train_step

# The launcher reports the first failure it sees. A process that only lost its peer waits this many
# seconds, so that the peer's own error is seen first.
LOST_S = 2.0


class ProcessFailed(VlcpError):
    """A process of the run failed; its message and exit code become those of the command."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def train(request: Request, *, quiet: bool = False) -> Path | None:
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


def _launch(request: Request, *, quiet: bool) -> Path | None:
    request = adapted(request)
    identity = semantic(request)
    # Rank 0 takes the lock again, so that it is held for as long as there is a writer, not for as
    # long as there is a launcher.
    with Staging(request.out).locked_to_look():
        is_made = already_trained(request, identity)
    if is_made:
        return request.out
    make_plan(request)  # so that wrong input gives one error, before any process starts
    method = _start_method(request)
    if method == "fork":
        preload()
    with TemporaryDirectory(prefix="vlcpctl-") as logs, _silence_torch(), forward_signals():
        configuration = _configuration(request, method, content_id(identity), logs)
        try:
            results = elastic_launch(configuration, run_process)(request, quiet, patience())
        except ChildFailedError as error:
            raise _error_of(*error.get_first_failure()) from error
        except RendezvousError as error:
            raise VlcpError(
                f"{request.nodes} machines did not all connect to {request.rendezvous}: {error}"
            ) from error
    return request.out if 0 in results else None


def _start_method(request: Request) -> str:
    """`fork` on Linux without CUDA, else `spawn`."""
    # A forked process needs no seconds to import torch again. CUDA cannot be used in a fork of a
    # process that has initialised it, and macOS's system libraries may crash in one.
    on_cpu = torch_device(request.device).type == "cpu"
    return "fork" if on_cpu and sys.platform == "linux" else "spawn"


def _configuration(request: Request, method: str, run_id: str, logs: str) -> LaunchConfig:
    """A launch that starts only when all machines have joined, without restarts."""
    # A restart is not needed: the same command resumes from the saved state.
    alone = request.nodes == 1
    return LaunchConfig(
        min_nodes=request.nodes,
        max_nodes=request.nodes,
        nproc_per_node=request.nproc // request.nodes,
        run_id=run_id,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if alone else str(request.rendezvous),
        local_addr="localhost" if alone else None,
        max_restarts=0,
        start_method=method,
        # SIGINT and SIGTERM are left to `forward_signals`: the processes save, then exit.
        signals_to_handle="SIGQUIT",
        logs_specs=DefaultLogsSpecs(log_dir=logs),
    )


def _error_of(rank: int, failure: ProcessFailure) -> ProcessFailed:
    """The error of the first process that failed, as the error of the command."""
    record, code = failure.error_file_data, failure.exitcode
    if "code" in record:
        return ProcessFailed(record["message"], record["code"])
    if isinstance(record["message"], dict):  # torch's record of an exception that is not ours
        return ProcessFailed(f"process {rank}: {record['message']['extraInfo']['py_callstack']}", 1)
    if code < 0:
        return ProcessFailed(
            f"process {rank} was killed ({failure.signal_name()}); the same command resumes from "
            "the last saved state",
            128 - code,
        )
    return ProcessFailed(f"process {rank} exited with code {code}", code)


@contextmanager
def _silence_torch() -> Iterator[None]:
    """Within the block, torch logs nothing unless VLCPCTL_DEBUG is set.

    The launcher logs a traceback for each failure, which would bury the one line of our error.
    """
    if not debugging():
        logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def take_part(request: Request, ranks: ProcessRanks) -> None:
    """Train as one of the processes that a launcher started; only rank 0 prints."""
    # In a process group of its own: a terminal sends Ctrl-C to the whole group, and the launcher
    # forwards it as well. A second signal would end the process without saving.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    if ranks.rank > 0:
        console.set_quiet(True)
    device = _process_device(request.device, ranks)
    with join_processes(ranks, device) as world:
        train_step(replace(request, device=str(device)), world=world)


def run_process(request: Request, quiet: bool, wait_s: float = 0.0) -> None:
    """The entry point of processes that `training.launch` starts; `wait_s` is --wait.

    An error is passed to the launcher in a file, and its exit code becomes the process's.
    """
    ranks = process_ranks()
    assert ranks is not None
    console.set_quiet(quiet)
    set_patience(wait_s)
    try:
        take_part(request, ranks)
    except (VlcpError, OSError) as error:
        if isinstance(error, LostProcess):
            time.sleep(LOST_S)
        code = error.exit_code if isinstance(error, VlcpError) else 1
        # torch's launcher reads this file too and requires `message` and `timestamp`.
        record = {"message": str(error), "timestamp": time.time(), "code": code}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(record))
        raise SystemExit(code) from error


def _process_device(name: str, ranks: ProcessRanks) -> torch.device:
    """The device of this process: with CUDA, one GPU for each process of a machine."""
    device = torch_device(name)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if ranks.local_rank >= count:
        raise UsageError(
            f"this machine has {count} CUDA devices for at least {ranks.local_rank + 1} processes; "
            f"use at most {count} per machine, or --device cpu"
        )
    return torch.device("cuda", ranks.local_rank)
