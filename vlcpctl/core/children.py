"""Command lines as children of one warm process: forked where safe, each when it can start."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import BinaryIO, Final

from vlcpctl.core import console
from vlcpctl.core.command_lines import CommandLine

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A fork of a macOS process may crash in the system's libraries.
CONTEXT: Final = (
    multiprocessing.get_context("fork")
    if sys.platform == "linux"
    else multiprocessing.get_context("spawn")
)


class Children:
    """Runs lines, at most `jobs` at once; after one fails no other starts."""

    def __init__(self, lines: Sequence[CommandLine], jobs: int) -> None:
        self.waiting = deque(lines)
        self.jobs = jobs
        self.running: list[_Child] = []
        self.failed: tuple[CommandLine, int] | None = None
        self.signal: int | None = None

    def run(self) -> None:
        """Start every line and wait for the last; `failed` is the first that failed, if any."""
        with self._forwarding():
            while self.running or self._may_go_on():
                line = self._next()
                if line is None:
                    self._collect()
                else:
                    self.waiting.remove(line)
                    self._start(line)

    def _may_go_on(self) -> bool:
        return bool(self.waiting) and self.failed is None and self.signal is None

    def _next(self) -> CommandLine | None:
        """The first line that can start: what it reads is written, no barrier is before it."""
        if not self._may_go_on() or len(self.running) >= self.jobs:
            return None
        unwritten = [child.line.makes for child in self.running]
        for line in self.waiting:
            if line.is_barrier:
                return None if unwritten else line
            if not line.reads(unwritten):
                return line
            unwritten.append(line.makes)
        return None

    def _start(self, line: CommandLine) -> None:
        if line.is_barrier:
            return
        console.say(f"[{line.number}] {line}")
        with _signals_held():  # until the child has its own handlers and stands in the list
            self.running.append(_Child(line, shows_directly=self.jobs == 1))

    def _collect(self) -> None:
        """Pass output on until a child has ended."""
        ready = wait([source for child in self.running for source in child.sources])
        for child in list(self.running):
            child.pass_on(ready)
            if child.process.sentinel in ready:
                self.running.remove(child)
                code = child.finish()
                if code and self.failed is None:
                    self.failed = (child.line, code)

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._forward) for number in FORWARDED}
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


class _Child:
    """One line at work; with others beside it, its output comes here and is passed on by lines."""

    def __init__(self, line: CommandLine, *, shows_directly: bool) -> None:
        self.line = line
        self.outputs: list[_Output] = []
        ends: list[Connection] = []
        if not shows_directly:
            prefix = f"[{line.number}] ".encode()
            for target, mark in ((console.results().buffer, b""), (sys.stderr.buffer, prefix)):
                reader, writer = CONTEXT.Pipe(duplex=False)
                self.outputs.append(_Output(reader, target, mark))
                ends.append(writer)
        self.process = CONTEXT.Process(target=_become, args=(line.words, ends))
        self.process.start()
        for end in ends:
            end.close()

    @property
    def sources(self) -> list[Connection | int]:
        """What to wait for: output, and the end."""
        return [*(o.reader for o in self.outputs if not o.ended), self.process.sentinel]

    def pass_on(self, ready: Sequence[object]) -> None:
        """Copy the lines that have come."""
        for output in self.outputs:
            if output.reader in ready:
                output.read()

    def finish(self) -> int:
        """The exit code, as a shell counts it, once the last output is passed on."""
        for output in self.outputs:
            while not output.ended:
                output.read()
        self.process.join()
        code = self.process.exitcode or 0
        return 128 - code if code < 0 else code


class _Output:
    """Bytes from a child, passed on as whole lines."""

    def __init__(self, reader: Connection, target: BinaryIO, mark: bytes) -> None:
        self.reader, self.target, self.mark = reader, target, mark
        self.rest = b""
        self.ended = False

    def read(self) -> None:
        """Pass on what is there; the last line gets its newline."""
        data = os.read(self.reader.fileno(), 1 << 16)
        self.ended = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        if self.ended and self.rest:
            lines.append(self.rest)
        for line in lines:
            self.target.write(self.mark + line + b"\n")
        self.target.flush()


@contextmanager
def _signals_held() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _become(words: Sequence[str], ends: Sequence[Connection]) -> None:
    """In the child: be the program that `python -m vlcpctl WORDS` would start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, from the parent
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    for descriptor, end in enumerate(ends, start=1):
        os.dup2(end.fileno(), descriptor)
    sys.argv = ["vlcpctl", *words]
    runpy.run_module("vlcpctl", run_name="__main__", alter_sys=True)
