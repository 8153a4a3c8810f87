"""Starts processes that work together with torch's elastic launcher, and passes on their errors."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vlcpctl.core import console
from vlcpctl.core.devices import torch_device
from vlcpctl.core.ending import forward_signals
from vlcpctl.core.errors import UsageError, VlcpError, debugging
from vlcpctl.core.machine import is_about_limits, limit_text
from vlcpctl.distributed.ranks import ProcessRanks
from vlcpctl.distributed.world import LostProcess

# The launcher reports the first failure it sees. A process that only lost its peer waits this many
# seconds, so that the peer's own error is seen first.
LOST_S = 2.0


class ProcessFailed(VlcpError):
    """A process of the run failed; its message and exit code become those of the command."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


@dataclass(frozen=True, kw_only=True)
class Launch:
    """`nproc` processes on `nodes` machines, each of which starts its share of them."""

    nproc: int
    method: str  # see `start_method`
    run_id: str  # the same on all machines
    nodes: int = 1
    rendezvous: str | None = None  # HOST:PORT on one of several machines


def start_method(device: str) -> str:
    """`fork` on Linux without CUDA, else `spawn`."""
    # A forked process needs no seconds to import torch again. CUDA cannot be used in a fork of a
    # process that has initialised it, and macOS's system libraries may crash in one.
    on_cpu = torch_device(device).type == "cpu"
    return "fork" if on_cpu and sys.platform == "linux" else "spawn"


def start_processes(
    launch: Launch, entry: Callable[..., None], *arguments: object
) -> Mapping[int, Any]:
    """Run `entry(*arguments)` in every process; returns the results of this machine's, by rank.

    Raises ProcessFailed if a process fails, and VlcpError if the machines do not connect.
    """
    with TemporaryDirectory(prefix="vlcpctl-") as logs, _silence_torch(), forward_signals():
        try:
            found: Mapping[int, Any] = elastic_launch(_configuration(launch, logs), entry)(
                *arguments
            )
        except ChildFailedError as error:
            raise _error_of(*error.get_first_failure()) from error
        except RendezvousError as error:
            raise VlcpError(
                f"{launch.nodes} machines did not all connect to {launch.rendezvous}: {error}"
            ) from error
    return found


def _configuration(launch: Launch, logs: str) -> LaunchConfig:
    """A launch that starts only when all machines have joined, without restarts."""
    # A restart is not needed: the same command resumes from the saved state.
    alone = launch.nodes == 1
    return LaunchConfig(
        min_nodes=launch.nodes,
        max_nodes=launch.nodes,
        nproc_per_node=launch.nproc // launch.nodes,
        run_id=launch.run_id,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if alone else str(launch.rendezvous),
        local_addr="localhost" if alone else None,
        max_restarts=0,
        start_method=launch.method,
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
    full = f"is {gettempdir()} full?"
    return ProcessFailed(f"process {rank} exited with code {code} without a message; {full}", code)


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


def enter_process(ranks: ProcessRanks) -> None:
    """Prepare this process, which a launcher started; only rank 0 prints."""
    # In a process group of its own: a terminal sends Ctrl-C to the whole group, and the launcher
    # forwards it as well. A second signal would end the process without saving.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    if ranks.rank > 0:
        console.set_quiet(True)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """In a process that `start_processes` started: pass an error of the block to the launcher.

    It is passed in a file, and its exit code becomes the process's. Errors of other kinds, which
    are mistakes in the program, are left to torch.
    """
    try:
        yield
    except (VlcpError, OSError) as error:
        if isinstance(error, LostProcess):
            time.sleep(LOST_S)
        code = error.exit_code if isinstance(error, VlcpError) else 1
        _report(str(error), code)
        raise SystemExit(code) from error
    except Exception as error:
        if not is_about_limits(error):
            raise
        _report(limit_text(error), 1)
        raise SystemExit(1) from error


def _report(message: str, code: int) -> None:
    # torch's launcher reads this file too and requires `message` and `timestamp`.
    record = {"message": message, "timestamp": time.time(), "code": code}
    file = Path(os.environ["TORCHELASTIC_ERROR_FILE"])
    try:
        file.write_text(json.dumps(record))
    except OSError:  # its disk is full; the launcher fails if the file is there, and empty
        file.unlink(missing_ok=True)


def process_device(name: str, ranks: ProcessRanks) -> torch.device:
    """The device of this process: with CUDA, one GPU for each process of a machine.

    Raises UsageError if there are fewer GPUs, or if one is named for several processes.
    """
    device = torch_device(name)
    if device.type != "cuda":
        return device
    if ":" in name and ranks.size > 1:
        raise UsageError(
            f"--device {name} names one GPU, but each of {ranks.size} processes has its own; use "
            "--device cuda, with CUDA_VISIBLE_DEVICES to choose the GPUs"
        )
    count = torch.cuda.device_count()
    if ranks.local_rank >= count:
        raise UsageError(
            f"this machine has {count} CUDA devices for at least {ranks.local_rank + 1} processes; "
            f"use at most {count} per machine, or --device cpu"
        )
    return torch.device("cuda", ranks.local_rank)
