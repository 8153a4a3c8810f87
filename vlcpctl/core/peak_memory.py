"""The most memory that this process has used so far."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_memory() -> dict[str, int]:
    """The peak memory in bytes: of the "process", and of its current GPU as "device" if it has one.

    The process's is resident memory, without its children. A figure that the system does not
    offer is left out.
    """
    process, device = _process(), _device()
    found = {"process": process, "device": device}
    return {name: value for name, value in found.items() if value is not None}


def _process() -> int | None:
    # Not getrusage: on Linux, its peak includes that of the process this one was started from.
    try:
        found = _PEAK.search(_STATUS.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _device() -> int | None:
    torch = sys.modules.get("torch")  # without it, the process has used no GPU
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())
