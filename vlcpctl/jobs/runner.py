"""Runs command lines as child processes of one warm process, several at once with --jobs.

On Linux the children are forked from a process that has already imported torch and open_clip, which
saves each of them seconds. Elsewhere they are spawned.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from statistics import fmean
from typing import BinaryIO, Final

from vlcpctl.core import console
from vlcpctl.core.ending import SIGNALS, held_signals
from vlcpctl.core.words import duration
from vlcpctl.jobs.script import CommandLine, expanded

# On macOS a forked process may crash in the system's libraries, so children are spawned there.
CONTEXT: Final = (
    multiprocessing.get_context("fork")
    if sys.platform == "linux"
    else multiprocessing.get_context("spawn")
)

_FEWEST_ENDED: Final = 3  # lines, before the time left is estimated
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class JobRunner:
    """Runs command lines, at most `jobs` at once; after one fails, no other is started.

    With `hides_outputs`, no line prints the path of its -o, for a caller that moves the output.
    """

    def __init__(
        self, lines: Sequence[CommandLine], jobs: int, *, hides_outputs: bool = False
    ) -> None:
        self.waiting = deque(lines)
        self.count = sum(not line.is_barrier for line in lines)
        self.started = 0
        self.seconds: dict[str, list[float]] = {}  # of the lines that ended, by command
        self.jobs = jobs
        self.hides_outputs = hides_outputs
        self.running: list[_ChildProcess] = []
        self.failed: tuple[CommandLine, int] | None = None
        self.signal: int | None = None

    def run(self) -> None:
        """Run all lines and wait for them.

        Afterwards `failed` is the first line that failed with its exit code, if any, and `signal`
        the signal that stopped the run, if any.
        """
        with self._forwarding():
            while self.running or self._may_start():
                line = self._next_ready()
                if line is None:
                    self._collect()
                else:
                    self.waiting.remove(line)
                    self._start(line)

    def _may_start(self) -> bool:
        return bool(self.waiting) and self.failed is None and self.signal is None

    def _next_ready(self) -> CommandLine | None:
        """The first line that can start now: all its inputs are written, no barrier precedes it.

        A line that follows an unfinished one waits, and so does one that follows a waiting one.
        """
        if not self._may_start() or len(self.running) >= self.jobs:
            return None
        earlier = [child.line for child in self.running]
        for line in self.waiting:
            if line.is_barrier:
                return None if earlier else line
            if not any(map(line.follows, earlier)):
                return line
            earlier.append(line)
        return None

    def _start(self, line: CommandLine) -> None:
        if line.is_barrier:
            return
        self.started += 1
        console.say(f"[{line.number}] {line}{self._note(line)}")
        # Until the child is in the list and has its own handlers, a signal would run the parent's
        # handler in it, or miss it.
        with held_signals():
            out = next((value for name, value in pairwise(line.words) if name == "-o"), None)
            hidden = out if self.hides_outputs else None
            self.running.append(_ChildProcess(line, hidden, shows_directly=self.jobs == 1))

    def _note(self, line: CommandLine) -> str:
        """As a comment of the shell: how many lines there are, and the time left once it shows."""
        if self.count == 1:
            return ""
        known = [one for of_command in self.seconds.values() for one in of_command]
        place = f"  # {self.started} of {self.count}"
        if len(known) < _FEWEST_ENDED:
            return place
        now = time.monotonic()
        left = sum(max(0.0, self._usual(one.line) + one.began - now) for one in self.running)
        left += sum(self._usual(one) for one in (line, *self.waiting) if not one.is_barrier)
        return f"{place}, about {duration(left / self.jobs)} left"

    def _usual(self, line: CommandLine) -> float:
        """The mean time of the lines of the same command that ended, or else of all, in seconds."""
        every = [one for of_command in self.seconds.values() for one in of_command]
        return fmean(self.seconds.get(line.words[0], every))

    def _collect(self) -> None:
        """Wait for output or the end of a child, pass output on, and reap children that ended."""
        ready = wait([source for child in self.running for source in child.sources])
        for child in list(self.running):
            child.pass_on(ready)
            if child.process.sentinel in ready:
                self.running.remove(child)
                code = child.finish()
                spent = time.monotonic() - child.began
                self.seconds.setdefault(child.line.words[0], []).append(spent)
                if code and self.failed is None:
                    self.failed = (child.line, code)

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:  # as `nohup` ignores SIGHUP, for the children too
                signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, _frame: object) -> None:
        self.signal = number
        for child in self.running:
            if child.process.pid and child.process.is_alive():
                os.kill(child.process.pid, number)


class _ChildProcess:
    """A running command line.

    If others run beside it, its output goes through pipes and is passed on in whole lines, so that
    lines of different children never mix.
    """

    def __init__(self, line: CommandLine, hidden: str | None, *, shows_directly: bool) -> None:
        self.line = line
        self.began = time.monotonic()
        self.outputs: list[_OutputPipe] = []
        ends: list[Connection] = []
        if not shows_directly:
            prefix = f"[{line.number}] ".encode()
            for target, mark in ((console.results().buffer, b""), (sys.stderr.buffer, prefix)):
                reader, writer = CONTEXT.Pipe(duplex=False)
                self.outputs.append(_OutputPipe(reader, target, mark))
                ends.append(writer)
        arguments = (line.words, ends, os.getpid(), hidden)
        self.process = CONTEXT.Process(target=_run_in_child, args=arguments)
        self.process.start()
        for end in ends:
            end.close()

    @property
    def sources(self) -> list[Connection | int]:
        """What to wait for: the open pipes, and the sentinel of the process."""
        return [*(o.reader for o in self.outputs if not o.ended), self.process.sentinel]

    def pass_on(self, ready: Sequence[object]) -> None:
        """Copy the output of those pipes that are ready."""
        for output in self.outputs:
            if output.reader in ready:
                output.read()

    def finish(self) -> int:
        """Pass on the remaining output and return the exit code: 128 + N after signal N."""
        for output in self.outputs:
            while not output.ended:
                output.read()
        self.process.join()
        code = self.process.exitcode or 0
        return 128 - code if code < 0 else code


class _OutputPipe:
    """One stream of a child's output, passed on in whole lines with a mark before each."""

    def __init__(self, reader: Connection, target: BinaryIO, mark: bytes) -> None:
        self.reader, self.target, self.mark = reader, target, mark
        self.rest = b""
        self.ended = False

    def read(self) -> None:
        """Pass on the bytes available now; the last line gets a newline if it lacks one."""
        data = os.read(self.reader.fileno(), 1 << 16)
        self.ended = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        if self.ended and self.rest:
            lines.append(self.rest)
        for line in lines:
            self.target.write(self.mark + line + b"\n")
        self.target.flush()


def _run_in_child(
    words: Sequence[str], ends: Sequence[Connection], parent: int, hidden: str | None
) -> None:
    """In the child of the process `parent`: run what `python -m vlcpctl WORDS` would run."""
    end_with(parent)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # A group of its own: Ctrl-C in a terminal reaches the child once, forwarded by the parent.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for descriptor, (end, name) in enumerate(
        zip(ends, ("stdout", "stderr"), strict=False), start=1
    ):
        os.dup2(end.fileno(), descriptor)
        # The parent's stream may have been a file, which can seek; the child's is a pipe.
        setattr(sys, name, os.fdopen(descriptor, "w", 1, "utf-8", closefd=False))
    console.hide_result(hidden)
    sys.argv = ["vlcpctl", *expanded(words)]
    # By its name: the program is above this module, and it is what `python -m vlcpctl` runs.
    importlib.import_module("vlcpctl.__main__").main()


def end_with(parent: int) -> None:
    """Let the kernel kill this process as soon as `parent`, the process that forked it, ends.

    A child that went on alone would hold the lock of its output, which the same command line,
    started again, would find busy, and keep the pipe open that its output goes to. Only Linux can
    do this; elsewhere nothing happens.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
