"""What a signal does: it ends the process at once, sets a flag, or is passed on to processes.

Where it ends the process, unfinished files are removed, and then the process exits at once.
Python's own way, an exception, can be raised where no code can handle it: in an import, in a
destructor, or while the interpreter shuts down. It is then printed as a traceback, or swallowed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_actions: list[Callable[[], None]] = []


@contextmanager
def at_signal(action: Callable[[], None]) -> Iterator[None]:
    """Within the block, a signal that ends this process calls `action` first; last in, first out.

    A child forked within the block does not: its parent's files are not its own.
    """
    _actions.append(action)
    try:
        yield
    finally:
        with suppress(ValueError):  # a forked child has cleared the list
            _actions.remove(action)


def end(number: int, _frame: object = None) -> None:
    """The signal handler: undo what is half-done and exit with 128 + the number of the signal.

    A second signal exits without undoing the rest; the next command that writes this output does.
    """
    try:
        for handled in SIGNALS:
            signal.signal(handled, _exit)
        for action in reversed(_actions):
            with suppress(Exception):
                action()
    finally:
        os._exit(128 + number)


@contextmanager
def ending_at_signals() -> Iterator[None]:
    """Within the block, SIGINT, SIGTERM and SIGHUP end the process as `end` does.

    A signal that is ignored, as `nohup` does with SIGHUP, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python installs and runs signal handlers in the main thread only
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler not in {signal.SIG_IGN, None}:  # None: set by a library, not from Python
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


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
        from multiprocessing import active_children  # not at the start of every command

        self._children = active_children
        self.passed = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler; in a forked child that has not set its own yet, it just exits."""
        children = self._children()
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


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold signals back within the block; they arrive at its end. A child starts with them held."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(number: int, _frame: object) -> None:
    os._exit(128 + number)


os.register_at_fork(after_in_child=_actions.clear)
