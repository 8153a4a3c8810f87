"""One of several processes that train together: join the others, train, leave."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from vlcpctl.core import console
from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import UsageError, VlcpError
from vlcpctl.engine.processes import Place, place
from vlcpctl.engine.request import Request
from vlcpctl.engine.train import train_step
from vlcpctl.engine.world import LostProcess, joined

# The launcher reports the first failure it sees. A process that only lost its peer waits this many
# seconds, so that the peer's own error is seen first.
LOST_S = 2.0


def take_part(request: Request, here: Place) -> None:
    """Train as one of the processes that a launcher started; only rank 0 prints."""
    # In a process group of its own: a terminal sends Ctrl-C to the whole group, and the launcher
    # forwards it as well. A second signal would end the process without saving.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    if here.rank > 0:
        console.set_quiet(True)
    device = _device(request.device, here)
    with joined(here, device) as world:
        train_step(replace(request, device=str(device)), world=world)


def launched(request: Request, quiet: bool) -> None:
    """The entry point of processes that `engine.launch` starts.

    An error is passed to the launcher in a file, and its exit code becomes the process's.
    """
    here = place()
    assert here is not None
    console.set_quiet(quiet)
    try:
        take_part(request, here)
    except (VlcpError, OSError) as error:
        if isinstance(error, LostProcess):
            time.sleep(LOST_S)
        code = error.exit_code if isinstance(error, VlcpError) else 1
        # torch's launcher reads this file too and requires `message` and `timestamp`.
        record = {"message": str(error), "timestamp": time.time(), "code": code}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(record))
        raise SystemExit(code) from error


def _device(name: str, here: Place) -> torch.device:
    """The device of this process: with CUDA, one GPU for each process of a machine."""
    device = torch_device(name)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if here.local >= count:
        raise UsageError(
            f"this machine has {count} CUDA devices for at least {here.local + 1} processes; "
            f"use at most {count} per machine, or --device cpu"
        )
    return torch.device("cuda", here.local)
