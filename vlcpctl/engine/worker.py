"""One of the processes that train together: join the others, train, leave."""

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

LOST_S = 2.0  # longer than the launcher takes to see which process ended first, and why


def take_part(request: Request, here: Place) -> None:
    """Train as one of the processes that a launcher started; those behind rank 0 are quiet."""
    if os.getpgrp() != os.getpid():  # a terminal's Ctrl-C comes once, from the launcher
        os.setpgid(0, 0)
    if here.rank > 0:
        console.set_quiet(True)
    device = _device(request.device, here)
    with joined(here, device) as world:
        train_step(replace(request, device=str(device)), world=world)


def launched(request: Request, quiet: bool) -> None:
    """What `vlcpctl.engine.launch` starts: errors go back to it, and the code is the error's."""
    here = place()
    assert here is not None
    console.set_quiet(quiet)
    try:
        take_part(request, here)
    except (VlcpError, OSError) as error:
        if isinstance(error, LostProcess):
            time.sleep(LOST_S)
        code = error.exit_code if isinstance(error, VlcpError) else 1
        # torch's launcher reads this file too, and wants its own two fields in it.
        record = {"message": str(error), "timestamp": time.time(), "code": code}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(record))
        raise SystemExit(code) from error


def _device(name: str, here: Place) -> torch.device:
    """Each process of a machine has a GPU of its own."""
    device = torch_device(name)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if here.local >= count:
        raise UsageError(
            f"{here.local + 1} processes or more on this machine, which has {count} CUDA devices; "
            f"at most {count} work here, or --device cpu"
        )
    return torch.device("cuda", here.local)
