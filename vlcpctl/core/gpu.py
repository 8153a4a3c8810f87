"""Whether a device is a GPU, and how many workers decode images for it. Torch-free on CPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

# Files of the drivers of NVIDIA and AMD GPUs, also in containers and under WSL.
DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
# With two pieces of a batch (32 MiB) each, they fill 4 GiB.
MOST_WORKERS: Final = 64


def is_gpu(device: str) -> bool:
    """Whether the device given with --device is a GPU; `auto` is one if torch finds one.

    Imports torch only where a driver is installed.
    """
    # A dry run must answer at once, and torch takes seconds to import.
    if device == "cpu" or not any(Path(driver).exists() for driver in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def has_tf32() -> bool:
    """Whether the GPU multiplies in TF32: those of NVIDIA from compute capability 8.0 do."""
    import torch

    return torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 0)


def own_cores() -> int:
    """This process's share of the cores that it may run on: at least 1.

    The processes that a launcher has started on this machine (LOCAL_WORLD_SIZE) share them equally.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def worker_count(wanted: int | None, device: str, processes: int = 1) -> int:
    """The number of worker processes for --workers; None, which is `auto`, depends on the device.

    On a CPU it is 0: workers would take the cores that the model computes on. On a GPU it is the
    number of this process's cores but one, which feeds the GPU; `processes` share its cores.
    """
    if wanted is not None:
        return wanted
    return min(max(1, own_cores() // processes - 1), MOST_WORKERS) if is_gpu(device) else 0


def in_words(wanted: int | None, device: str) -> str:
    """The device and the number of workers, for the lines of a plan.

    >>> in_words(1, "cpu"), in_words(None, "cpu")
    ('device cpu, 1 worker', 'device cpu, no workers (auto)')
    """
    if device == "auto":
        device = "cuda" if is_gpu(device) else "cpu"
    count = worker_count(wanted, device)
    words = f"device {device}, {count or 'no'} worker{'' if count == 1 else 's'}"
    return f"{words} (auto)" if wanted is None else words
