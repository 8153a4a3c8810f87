"""The memory of this process: how much it has used, and how its C library hands it back."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_MEMORY, _AVAILABLE = Path("/proc/meminfo"), re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP = Path("/sys/fs/cgroup")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
_MOST_BYTES = 1 << 30


def peak_memory() -> dict[str, int]:
    """The peak memory in bytes: of the "process", and of its current GPU as "device" if it has one.

    The process's is resident memory, without its children. A figure that the system does not
    offer is left out.
    """
    process, device = _process(), _device()
    found = {"process": process, "device": device}
    return {name: value for name, value in found.items() if value is not None}


def free_memory() -> int:
    """The bytes that processes can still take on this machine, or in its container."""
    try:
        found = _AVAILABLE.search(_MEMORY.read_text(encoding="ascii", errors="replace"))
    except OSError:
        found = None
    free = int(found[1]) * 1024 if found else os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2
    try:
        most, used = (
            int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no container, or one without a limit, whose memory.max is "max"
        return free
    return min(free, max(0, most - used))


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


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed tensors, for those of the next step.

    By default glibc returns large freed blocks to the system, which must then clear every page that
    the next step allocates: 6 % of a small model's training step. Each step allocates what the one
    before has freed, so peak memory did not grow. What was freed until now is handed back first:
    preparing a task frees arrays with a place for each row. Without glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)  # musl, as in Alpine, has none
    if mallopt is not None:
        library.malloc_trim(0)
        mallopt(_MMAP_THRESHOLD, _MOST_BYTES)
        mallopt(_TRIM_THRESHOLD, -1)  # -1: never
