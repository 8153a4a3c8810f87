"""Signals: a flag that the loop reads at the step boundary, or passed on to processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Set by the first signal; a second one ends the process at once with 130 or 143."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number


class Forward:
    """Passes the first signal on to the children; a second one kills them and ends the process."""

    def __init__(self) -> None:
        self.passed = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler; a forked child has it too until it has its own."""
        children = multiprocessing.active_children()
        for child in children:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL if self.passed else number)
        if self.passed or not children:
            os._exit(128 + number)
        self.passed = True


Handler = TypeVar("Handler", Stop, Forward)


def stop_flag() -> AbstractContextManager[Stop]:
    """A flag that signals set while the block runs."""
    return _handling(Stop())


def forwarded() -> AbstractContextManager[Forward]:
    """Signals go to the processes that the block starts."""
    return _handling(Forward())


@contextmanager
def _handling(handler: Handler) -> Iterator[Handler]:
    """Let it handle signals while the block runs; the old handlers come back after it."""
    if threading.current_thread() is not threading.main_thread():
        yield handler  # signals only ever arrive in the main thread
        return
    before = {number: signal.signal(number, handler.handle) for number in SIGNALS}
    try:
        yield handler
    finally:
        for number, old in before.items():
            signal.signal(number, old)
