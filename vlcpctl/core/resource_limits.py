"""Limits on memory and processes, such as `ulimit -v`: errors of one line at the limit."""

from __future__ import annotations

import os
import re
import resource
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from vlcpctl.core.errors import VlcpError, first_line

THREADS: Final = 4  # that a small command starts at once
# What libraries raise as a RuntimeError or ImportError.
_SIGNS = (
    "can't start new thread",
    "can't allocate memory",
    "out of memory",
    "Cannot allocate memory",
    "failed to map segment",
    "Resource temporarily unavailable",
)
_LOST_WORKER = "DataLoader worker (pid"  # torch's words for a worker that was killed


def is_about_limits(error: BaseException) -> bool:
    """Whether memory, threads or processes ran out, for which a worker may have been killed."""
    is_named = isinstance(error, MemoryError) or any(sign in str(error) for sign in _SIGNS)
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
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    status = Path("/proc/self/status")
    if limit == resource.RLIM_INFINITY or not status.exists():
        return False
    peak = re.search(r"^VmPeak:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    return peak is not None and int(peak[1]) * 1024 > 0.9 * limit


def memory_limit() -> int:
    """The bytes of memory for this process: of the machine, its control groups and ulimit -v."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
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
    lines = [line.strip() for line in str(error).splitlines() if any(s in line for s in _SIGNS)]
    reason = lines[0] if lines else first_line(error)
    return f"out of memory ({reason}); see ulimit -v and -u, or use smaller batches"


def lost_worker_text(error: BaseException) -> str:
    """The message for a worker that ended, on one line; `error` is what showed it.

    >>> lost_worker_text(ConnectionResetError("Connection reset by peer"))
    'a worker process ended (Connection reset by peer); if memory ran out, use fewer --workers'
    """
    return f"a worker process ended ({first_line(error)}); if memory ran out, use fewer --workers"


def require_threads() -> None:
    """Raise VlcpError if memory is limited (ulimit -v) so tightly that threads cannot start.

    Libraries in C++ would wait for such a thread forever, or crash.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    proceed, started = threading.Event(), []
    try:
        for _ in range(THREADS):
            thread = threading.Thread(target=proceed.wait)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise VlcpError(limit_text(error)) from error
    finally:
        proceed.set()
        for thread in started:
            thread.join()
