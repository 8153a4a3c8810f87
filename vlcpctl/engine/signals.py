"""Turn SIGINT and SIGTERM into a flag that the loop reads at the step boundary."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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


@contextmanager
def stop_flag() -> Iterator[Stop]:
    """A flag that signals set while the block runs; the old handlers come back after it."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals only ever arrive in the main thread
        return
    before = {number: signal.signal(number, stop.handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
