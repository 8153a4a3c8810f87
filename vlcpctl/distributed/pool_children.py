"""The other processes of a pool, started on this machine and connected to this one by pipes."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, final

import torch

from vlcpctl.core import console
from vlcpctl.core.ending import SIGNALS, at_signal, ending_at_signals, held_signals
from vlcpctl.distributed.launch import ProcessFailed, process_device, start_method
from vlcpctl.distributed.ranks import ProcessRanks
from vlcpctl.distributed.serving import Channel, serve

# Room for the result of an item or two, so that a process can compute the next one before the first
# process, which has other work too, has received it. 1 MiB is what Linux allows every user.
_PIPE_BYTES: Final = 2**20
_END_S: Final = 5.0  # that a process has to end before it is killed


@contextmanager
def start_children(
    size: int, device: str, preload: Callable[[], object]
) -> Iterator[Sequence[Channel]]:
    """Channels to `size` - 1 processes, which end with the block; see `pool_of`."""
    devices = [
        str(process_device(device, ProcessRanks(rank, size, rank))) for rank in range(1, size)
    ]
    method = start_method(device)
    if method == "fork":
        preload()
    children: list[_Child] = []

    def terminate() -> None:
        for child in children:
            child.terminate()

    with at_signal(terminate):
        try:
            for name in devices:
                # Until the child is in the list and has its own handlers, a signal would run the
                # handler of this process in it, or miss it.
                with held_signals():
                    children.append(_Child(method, name, children))
            yield children
        finally:
            for child in children:
                child.end()


@final
class _Child(Channel):
    """A process that this one has started."""

    def __init__(self, method: str, device: str, earlier: Sequence[_Child]) -> None:
        self._rank = len(earlier) + 1
        context: Any = multiprocessing.get_context(method)
        requests, self._requests = context.Pipe(duplex=False)
        self._replies, replies = context.Pipe(duplex=False)
        with suppress(OSError, AttributeError):  # only Linux can set the size of a pipe
            fcntl.fcntl(replies.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        # A forked child has the ends of this process too. While one is open anywhere, the process
        # at the other end does not notice that this one has ended.
        open_ends = [end for child in [*earlier, self] for end in child.ends]
        inherited = open_ends if method == "fork" else []
        self._process = context.Process(
            target=_run_child, args=(requests, replies, inherited, device)
        )
        self._process.start()
        requests.close()
        replies.close()

    @property
    def ends(self) -> list[Connection]:
        """The ends of the pipes that this process uses."""
        return [self._requests, self._replies]

    def send(self, message: object) -> None:
        try:
            self._requests.send(message)
        except OSError as error:
            raise self._failure() from error

    def receive(self) -> Any:
        try:
            return self._replies.recv()
        except (EOFError, OSError) as error:
            raise self._failure() from error

    def _failure(self) -> ProcessFailed:
        self._process.join(_END_S)
        code = self._process.exitcode
        if code is not None and code < 0:
            how = f"was killed ({signal.Signals(-code).name}); run the same command again"
            return ProcessFailed(f"process {self._rank} {how}", 128 - code)
        return ProcessFailed(f"process {self._rank} exited with code {code}", code or 1)

    def terminate(self) -> None:
        """Let the process end at once, and its workers with it."""
        self._process.terminate()

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        self._process.terminate()
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        for end in self.ends:
            end.close()


def _run_child(
    requests: Connection, replies: Connection, inherited: Sequence[Connection], device: str
) -> None:
    """In a child: compute what is requested, until the process that started it ends it, or ends."""
    for end in inherited:
        end.close()
    # In a process group of its own: at Ctrl-C in a terminal, the first process ends the others.
    os.setpgid(0, 0)
    console.set_quiet(True)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    with ending_at_signals():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        with suppress(EOFError, BrokenPipeError):
            serve(_Pipes(requests, replies), device)


@final
class _Pipes(Channel):
    """The pipes of a child to the process that started it."""

    def __init__(self, requests: Connection, replies: Connection) -> None:
        self._requests, self._replies = requests, replies

    def send(self, message: object) -> None:
        self._replies.send(message)

    def receive(self) -> Any:
        return self._requests.recv()
