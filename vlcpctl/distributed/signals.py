"""Signals set a flag that the loop checks after each step, or are forwarded to processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TypeVar

from vlcpctl.core.ending import SIGNALS, end


class StopFlag:
    """Set by the first signal; a second one ends the process at once with 130, 143 or 129."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler: only sets the flag, so that no step is cut in half."""
        if self.signal is not None:
            end(number)
        self.signal = number


class SignalForwarder:
    """Forwards the first signal to the children; a second one kills them and exits."""

    def __init__(self) -> None:
        self.passed = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler; in a forked child that has not set its own yet, it just exits."""
        children = multiprocessing.active_children()
        for child in children:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL if self.passed else number)
        if self.passed or not children:
            end(number)
        self.passed = True


Handler = TypeVar("Handler", StopFlag, SignalForwarder)


def stop_flag() -> AbstractContextManager[StopFlag]:
    """Within the block, SIGINT, SIGTERM and SIGHUP set the flag that it returns."""
    return _handling_signals(StopFlag())


def forward_signals() -> AbstractContextManager[SignalForwarder]:
    """Within the block, signals are forwarded to the processes started there."""
    return _handling_signals(SignalForwarder())


@contextmanager
def _handling_signals(handler: Handler) -> Iterator[Handler]:
    """Install the handler within the block, then restore the old handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield handler  # Python installs and runs signal handlers in the main thread only
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, old in before.items():
        if number != signal.SIGHUP or old != signal.SIG_IGN:  # `nohup` is respected
            signal.signal(number, handler.handle)
    try:
        yield handler
    finally:
        for number, old in before.items():
            signal.signal(number, old)
