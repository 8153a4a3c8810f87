"""A child process that does not outlive its parent, even one that is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def end_with(parent: int) -> None:
    """Let the kernel kill this process as soon as `parent`, the process that forked it, ends.

    A command that went on alone would hold the lock of its output: the same command line, started
    again, would find it busy. Only Linux can do this; elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
