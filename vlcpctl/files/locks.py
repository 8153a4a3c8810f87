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
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.words import printable

GRACE_S: Final = 0.3  # a lock that is held for a moment only, to tidy up, is not worth an error
_POLL_S = 0.1
_MOST_BYTES = 8192  # of a lock's file that are read
_MOST_CHARACTERS = 500  # of the command line that are stored
# NFS without a lock daemon, FUSE and other file systems refuse.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

_held: dict[tuple[int, int], HeldLock] = {}  # by device and inode


class _State:
    patience_s = 0.0
    has_warned = False


@dataclass(eq=False)
class HeldLock:
    """A lock of this process; it can be acquired again, and is free after as many releases."""

    descriptor: int
    is_real: bool  # False where the file system has no locks
    uses: int = 1

    def write_holder(self, text: str) -> None:
        """Replace the content of the lock's file by `text` and a line of JSON about this process.

        Others show it when they find the lock held; on a full disk, only that is lost.
        """
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": printable(" ".join(sys.argv))[:_MOST_CHARACTERS],
        }
        with suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"{text}{json.dumps(holder)}\n".encode(), 0)

    def is_exclusive(self) -> bool:
        """Whether this process is the only holder; makes a shared lock exclusive if it is.

        After False, a shared lock may be gone: for the last moment before `release`.
        """
        return self.is_real and _try_lock(self.descriptor, fcntl.LOCK_EX) is True

    def release(self) -> None:
        """Undo one acquisition; the last one frees the lock."""
        self.uses -= 1
        if self.uses == 0 and self in _held.values():  # a forked child has closed it
            del _held[_key(os.fstat(self.descriptor))]
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
    output: Path,
    *,
    shared: bool = False,
    wait_s: float | None = None,
    parts: Callable[[], Iterable[Path]] = tuple,
) -> HeldLock:
    """Lock the file at `path`, which `open_file` opens or creates; `output` is for the message.

    Waits `wait_s` seconds (None: as set with `set_patience`). Raises OutputExists, naming the
    process that holds it, if another process still does. Those that share the lock each hold one
    of `parts`, too: the file itself names the last that came, which may have ended.
    """
    wait_s = _State.patience_s if wait_s is None else wait_s
    started, has_reported = time.monotonic(), False
    while True:
        descriptor = open_file()
        key = _key(os.fstat(descriptor))
        if key in _held:
            os.close(descriptor)
            _held[key].uses += 1
            return _held[key]
        is_locked = _try_lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        # The last holder removes the file, and another process may have made a new one since.
        if is_locked is not False and _is_at(path, key):
            return _held.setdefault(key, HeldLock(descriptor, is_real=is_locked is True))
        holder = next(filter(None, map(holder_of, parts())), None) or _holder(descriptor)
        os.close(descriptor)
        if is_locked is not False:
            continue
        waited = time.monotonic() - started
        if waited >= max(wait_s, GRACE_S):
            raise OutputExists(_busy(output, holder, wait_s))
        if wait_s and not has_reported and waited >= GRACE_S:
            say(f"{_being_written(output, holder)}; waiting for it")
            has_reported = True
        time.sleep(_POLL_S)


def holder_of(path: Path) -> dict[str, Any] | None:
    """What the lock's file records about the process that holds its lock now; None if none does.

    Only looks: a process that is about to lock the file does not notice.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    except OSError:  # no locks here, so nobody holds one
        return None
    else:
        return None
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool | None:
    """Whether the lock was taken; None where the file system has no locks."""
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


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_at(path: Path, key: tuple[int, int]) -> bool:
    try:
        return _key(path.stat(follow_symlinks=False)) == key
    except OSError:
        return False


def _holder(descriptor: int) -> dict[str, Any]:
    """What the lock's file records about its holder; {} if it cannot be read."""
    try:
        lines = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace").splitlines()
        found = json.loads(lines[-1])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _being_written(output: Path, holder: dict[str, Any]) -> str:
    if not {"pid", "host", "since"} <= holder.keys():
        return f"{output} is being written by another process"
    return printable(
        f"{output} is being written by process {holder['pid']} on host {holder['host']}, "
        f"started at {holder['since']}"
    )


def _busy(output: Path, holder: dict[str, Any], wait_s: float) -> str:
    if 0 < wait_s < math.inf:
        return f"{_being_written(output, holder)} (waited {wait_s:g} s); give --wait more seconds"
    return f"{_being_written(output, holder)}; wait for it, or use --wait"


def _forget() -> None:
    for held in _held.values():
        with suppress(OSError):
            os.close(held.descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
