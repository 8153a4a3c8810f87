"""Advisory locks on files: one process at a time writes an output.

The lock is the kernel's (`flock`): it is released as soon as its holder ends, however it ends.
Children never hold a lock of their parent: a forked one closes the descriptors, and a program that
a process starts does not inherit them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.words import printable

_TEXT = """\
vlcpctl stores unfinished outputs here, and the previous output that --force replaced.
This directory may be removed when no vlcpctl command is running.
"""
_GRACE_S = 0.3  # a lock that is held for a moment only, to tidy up, is not worth an error
_POLL_S = 0.1
_MOST_BYTES = 8192  # of a lock's file that are read
# NFS without a lock daemon, FUSE and other file systems refuse.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

_held: dict[Path, Lock] = {}


class _State:
    patience_s = 0.0
    has_warned = False


@dataclass(eq=False)
class Lock:
    """A lock of this process; it can be acquired again, and is free after as many releases."""

    path: Path
    descriptor: int
    is_real: bool  # False where the file system has no locks
    uses: int = 0

    def is_only(self) -> bool:
        """Whether no other process holds it; this one then holds it alone.

        After False, a shared lock may be gone: for the last moment before `release`.
        """
        return not self.is_real or _try(self.descriptor, fcntl.LOCK_EX) is True

    def release(self) -> None:
        """Undo one acquisition; the last one frees the lock."""
        self.uses -= 1
        if self.uses == 0:
            del _held[self.path]
            os.close(self.descriptor)


def set_patience(seconds: float) -> None:
    """Set how long `acquire` waits for a lock that another process holds: --wait."""
    _State.patience_s = seconds


def patience() -> float:
    """The seconds that `acquire` waits for a lock that another process holds."""
    return _State.patience_s


def acquire(
    path: Path,
    open_file: Callable[[], int],
    *,
    output: Path,
    is_shared: bool = False,
    wait_s: float | None = None,
) -> Lock:
    """Lock the file at `path`, which `open_file` opens or creates; `output` is for the message.

    Waits `wait_s` seconds (None: as set with `set_patience`). Raises OutputExists, naming the
    process that holds it, if another process still does; one that shares it is not named.
    """
    wait_s = _State.patience_s if wait_s is None else wait_s
    started, has_said = time.monotonic(), False
    while path not in _held:
        descriptor = open_file()
        is_locked = _try(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        # The last holder removes the file, and another process may have made a new one since.
        if is_locked is not False and _is_at(path, descriptor):
            _write_holder(descriptor, is_named=not is_shared)
            _held[path] = Lock(path, descriptor, is_real=is_locked is True)
            break
        holder = _holder(descriptor)
        os.close(descriptor)
        if is_locked is not False:
            continue
        waited = time.monotonic() - started
        if waited >= max(wait_s, _GRACE_S):
            raise OutputExists(f"{_busy(output, holder)}{_advice(wait_s)}")
        if wait_s and not has_said and waited >= _GRACE_S:
            say(f"{_busy(output, holder)}; waiting for it")
            has_said = True
        time.sleep(_POLL_S)
    _held[path].uses += 1
    return _held[path]


def holder_of(path: Path) -> dict[str, Any] | None:
    """What the lock's file records about the process that holds its lock now; None if none does.

    Only looks: a process that is about to lock the file does not notice.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _holder(descriptor) if _try(descriptor, fcntl.LOCK_SH) is False else None
    finally:
        os.close(descriptor)


def _try(descriptor: int, kind: int) -> bool | None:
    """Whether the lock was taken; None, after a warning, where the file system has no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        if not _State.has_warned:
            _State.has_warned = True
            warn(
                f"this file system does not support locks ({error.strerror}): do not start two "
                "commands with the same --out"
            )
        return None
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False


def _write_holder(descriptor: int, *, is_named: bool) -> None:
    """Say in the lock's file what it is for and, on its last line, which process holds it.

    On a full disk, only that is lost.
    """
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{_TEXT}{json.dumps(holder) if is_named else ''}\n".encode(), 0)


def _holder(descriptor: int) -> dict[str, Any]:
    """What the lock's file records about its holder; {} if it cannot be read."""
    try:
        lines = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace").splitlines()
        found = json.loads(lines[-1])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _busy(output: Path, holder: dict[str, Any]) -> str:
    if not {"pid", "host", "since"} <= holder.keys():
        return f"{output} is being written by another process"
    return printable(
        f"{output} is being written by process {holder['pid']} on host {holder['host']}, "
        f"started at {holder['since']}"
    )


def _advice(wait_s: float) -> str:
    if 0 < wait_s < math.inf:
        return f" (waited {wait_s:g} s); give --wait more seconds"
    return "; wait for it, or use --wait"


def _forget() -> None:
    for lock in _held.values():
        lock.uses = 0  # so that a child that leaves a block of its parent changes nothing
        os.close(lock.descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
