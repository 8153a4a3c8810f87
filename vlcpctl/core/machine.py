"""What this machine has: GPUs, cores, memory and their limits. Nothing is imported for it on CPUs.

The first import of torch is also here, since it takes seconds.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import resource
import sys
import threading
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from vlcpctl.core.errors import VlcpError, first_line
from vlcpctl.core.words import parse_whole_number

if TYPE_CHECKING:
    from importlib.abc import Loader

# Files of the drivers of NVIDIA and AMD GPUs, also in containers and under WSL.
DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
# With two pieces of a batch (32 MiB) each, they fill 4 GiB.
MOST_WORKERS: Final = 64
MOST_THREADS: Final = 1024
AUTO_THREADS: Final = 0  # of a request that has just been read
_THREADS: Final = 4  # that a small command starts at once
_STATUS = Path("/proc/self/status")
_MEMORY, _AVAILABLE = Path("/proc/meminfo"), re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP, _GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc's malloc.h
# How libraries say that a limit is reached, in a RuntimeError or ImportError.
_AT_LIMIT = re.compile(
    "can't start new thread|can't allocate memory|out of memory|cannot allocate memory"
    "|failed to map segment|resource temporarily unavailable|too many open files",
    re.IGNORECASE,
)
_LOST_WORKER = "DataLoader worker (pid"  # torch's words for a worker that was killed


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
    return max(1, min(cores, _granted_cores()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def thread_number(text: str) -> int:
    """The number of --threads; AUTO_THREADS for `auto`. Raises ValueError for anything else.

    >>> thread_number("4"), thread_number("auto") == AUTO_THREADS
    (4, True)
    """
    if text == "auto":
        return AUTO_THREADS
    count = parse_whole_number(text)
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"{text:.30} is neither auto nor at least 1 and at most {MOST_THREADS}")
    return count


def threads_of(processes: int) -> int:
    """The number of threads for --threads auto, where `processes` share this one's cores.

    With 0 of them, of fewer processes than machines, which is refused later, it is that of one.
    """
    # Those of a launcher do so already.
    return max(1, own_cores() // (1 if "LOCAL_WORLD_SIZE" in os.environ else max(1, processes)))


def _granted_cores() -> int:
    """The cores whose time the control groups of this process grant it, rounded up."""
    found = [MOST_THREADS]
    with suppress(OSError):
        group = Path(_GROUPS.read_text().splitlines()[-1].rpartition(":")[2].lstrip("/"))
        for place in (group, *group.parents):
            with suppress(OSError, ValueError):  # "max": no limit
                quota, period = map(int, (_CGROUP / place / "cpu.max").read_text().split())
                found.append(-(-quota // period))
    return min(found)


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


def peak_memory() -> dict[str, int]:
    """The peak memory in bytes: of the "process", and of its current GPU as "device" if it has one.

    The process's is resident memory, without its children. A figure that the system does not
    offer is left out.
    """
    # Not getrusage: on Linux, its peak includes that of the process this one was started from.
    process = _status("VmHWM")
    found = {} if process is None else {"process": process}
    torch = sys.modules.get("torch")  # without it, the process has used no GPU
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        found["device"] = int(torch.cuda.max_memory_allocated())
    return found


def _status(name: str) -> int | None:
    """A size in bytes that Linux says of this process; None on another system."""
    try:
        text = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def free_memory() -> int:
    """The bytes that processes can still take on this machine, or in its container."""
    try:
        found = _AVAILABLE.search(_MEMORY.read_text(encoding="ascii", errors="replace"))
    except OSError:
        found = None
    every = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = int(found[1]) * 1024 if found else every // 2
    try:
        most, used = (
            int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no container, or one without a limit, whose memory.max is "max"
        return free
    return min(free, max(0, most - used))


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed tensors, for those of the next step.

    By default glibc returns large freed blocks to the system, which must then clear every page that
    the next step allocates: 6 % of a small model's training step. Each step allocates what the one
    before has freed, so peak memory did not grow. What was freed until now is handed back first:
    preparing a task frees arrays with a place for each row. Without glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    library = ctypes.CDLL(None)
    mallopt = getattr(library, "mallopt", None)  # musl, as in Alpine, has none
    if mallopt is not None:
        library.malloc_trim(0)
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, -1)  # -1: never


def is_about_limits(error: BaseException) -> bool:
    """Whether memory, threads, processes or open files ran out, or a worker was killed for it."""
    is_named = isinstance(error, MemoryError) or _AT_LIMIT.search(str(error)) is not None
    return is_named or is_lost_worker(error) or _is_at_memory_limit()


def is_lost_worker(error: BaseException) -> bool:
    """Whether a worker of torch's DataLoader was killed.

    torch raises it wherever the program is when it gets the signal, or when it reads an item.
    """
    return _LOST_WORKER in str(error)


def _is_at_memory_limit() -> bool:
    """Whether the process has come within a tenth of its memory limit (ulimit -v), if it has one.

    Libraries that could not be loaded cause errors of every kind later.
    """
    limit, peak = resource.getrlimit(resource.RLIMIT_AS)[0], _status("VmPeak")
    return limit != resource.RLIM_INFINITY and peak is not None and peak > 0.9 * limit


def memory_limit() -> int:
    """The bytes of memory for this process: of the machine, its control groups and ulimit -v."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    with suppress(OSError):
        for line in _GROUPS.read_text().splitlines():
            group = Path(line.rpartition(":")[2])
            for place in (group, *group.parents):
                for name in (f"{place}/memory.max", f"memory{place}/memory.limit_in_bytes"):
                    with suppress(OSError, ValueError):
                        found.append(int(Path("/sys/fs/cgroup", name.lstrip("/")).read_text()))
    return min(found)


def limit_text(error: BaseException) -> str:
    """The message for an error of which `is_about_limits` is true, on one line.

    >>> limit_text(MemoryError())
    'out of memory (MemoryError); see ulimit -v and -u, or use smaller batches'
    """
    if is_lost_worker(error):
        return lost_worker_text(error)
    lines = [line.strip() for line in str(error).splitlines() if _AT_LIMIT.search(line)]
    reason = lines[0] if lines else first_line(error)
    if "open files" in reason:
        return f"{reason}; see ulimit -n"
    return f"out of memory ({reason}); see ulimit -v and -u, or use smaller batches"


def lost_worker_text(error: BaseException) -> str:
    """The message for a worker that ended, on one line; `error` is what showed it."""
    return f"a worker process ended ({first_line(error)}); if memory ran out, use fewer --workers"


def require_threads() -> None:
    """Raise VlcpError if memory is limited (ulimit -v) so tightly that threads cannot start.

    Libraries in C++ would wait for such a thread forever, or crash.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    proceed, started = threading.Event(), []
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=proceed.wait)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise VlcpError(limit_text(error)) from error
    finally:
        proceed.set()
        for thread in started:
            thread.join()


class _WithoutCollection:
    """A finder of torch alone: the loader that the others find, run without the collector.

    Nothing of the 600,000 objects that it creates is garbage. Frozen afterwards, they are not
    looked through by later collections, nor are their pages copied by these in forked processes.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            vars(spec.loader)["exec_module"] = _frozen(spec.loader)
        return spec


def _frozen(loader: Loader) -> Any:
    execute = loader.exec_module

    def run(module: ModuleType) -> None:
        collects = gc.isenabled()
        gc.disable()
        try:
            execute(module)
        finally:
            gc.freeze()
            if collects:
                gc.enable()

    return run


def speed_up_torch() -> None:
    """Let the first import of torch, if any, go without garbage collection: a sixth less time."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _WithoutCollection())
