"""Turn SIGINT and SIGTERM into a flag that the loop reads at the step boundary."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FORWARDED = (*SIGNALS, signal.SIGHUP)


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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)  # see `forwarded`
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def forwarded() -> Iterator[None]:
    """Pass signals on to the children that the block starts; a second one kills them.

    The children are born with signals held back, as they are here, so that none is lost before
    they can handle it: `stop_flag` lets them through.
    """
    resource_tracker.ensure_running()  # the first use of it would let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    over = threading.Event()
    thread = threading.Thread(target=_forward, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        assert thread.ident is not None
        signal.pthread_kill(thread.ident, signal.SIGTERM)  # wakes it
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward(over: threading.Event) -> None:
    asked = False
    while True:
        number = signal.sigwait(FORWARDED)
        if over.is_set():
            return
        children = multiprocessing.active_children()
        if asked or not children:
            for child in children:
                child.kill()
            os._exit(128 + number)
        for child in children:
            assert child.pid is not None
            os.kill(child.pid, number)
        asked = True
