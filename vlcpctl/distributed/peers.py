"""The other processes of a pool, started here or by a launcher, and what they do."""

from __future__ import annotations

import copy
import fcntl
import multiprocessing
import os
import pickle
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final

import torch
from torch.distributed.rendezvous import rendezvous

from vlcpctl.core import console
from vlcpctl.core.ending import SIGNALS, at_signal, ending_at_signals, held_signals
from vlcpctl.core.errors import VlcpError
from vlcpctl.distributed.launch import ProcessFailed, enter_process, process_device, start_method
from vlcpctl.distributed.pool import Peer, Pool, joined
from vlcpctl.distributed.ranks import ProcessRanks
from vlcpctl.distributed.world import LostProcess, connecting

# Room for the result of an item or two, so that a process can compute the next one before the first
# process, which has other work too, has received it. 1 MiB is what Linux allows every user.
_PIPE_BYTES: Final = 2**20
_END_S: Final = 5.0  # that a process has to end before it is killed


@contextmanager
def start_peers(size: int, device: str, preload: Callable[[], object]) -> Iterator[Sequence[Peer]]:
    """`size` - 1 processes on this machine, which end with the block; see `pool_of`."""
    ranks = [ProcessRanks(rank, size, rank) for rank in range(1, size)]
    devices = [str(process_device(device, one)) for one in ranks]
    method = start_method(device)
    if method == "fork":
        preload()
    children: list[BaseProcess] = []
    peers: list[Peer] = []

    def terminate() -> None:
        for child in children:
            child.terminate()

    with at_signal(terminate):
        try:
            for name in devices:
                # Until the child is in the list and has its own handlers, a signal would run the
                # handler of this process in it, or miss it.
                with held_signals():
                    _start(method, name, children, peers)
            yield peers
        finally:
            terminate()
            for child, peer in zip(children, peers, strict=True):
                child.join(_END_S)
                child.kill()
                child.join()
                peer.requests.close()
                peer.replies.close()


def _start(method: str, device: str, children: list[BaseProcess], peers: list[Peer]) -> None:
    """Start one more process, which is connected to this one by pipes."""
    context: Any = multiprocessing.get_context(method)
    theirs, requests = context.Pipe(duplex=False)
    replies, answers = context.Pipe(duplex=False)
    with suppress(OSError, AttributeError):  # only Linux can set the size of a pipe
        fcntl.fcntl(answers.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    # A forked child has the ends of this process too. While one is open anywhere, the process at
    # the other end does not notice that this one has ended.
    open_ends = [requests, replies, *(end for one in peers for end in (one.requests, one.replies))]
    inherited = open_ends if method == "fork" else []
    child = context.Process(target=_run_child, args=(theirs, answers, inherited, device))
    child.start()
    children.append(child)
    peers.append(Peer(requests, replies, partial(_end_of, child, len(children))))
    theirs.close()
    answers.close()


def _end_of(child: BaseProcess, rank: int) -> ProcessFailed:
    child.join(_END_S)
    code = child.exitcode
    if code is not None and code < 0:
        how = f"was killed ({signal.Signals(-code).name}); run the same command again"
        return ProcessFailed(f"process {rank} {how}", 128 - code)
    return ProcessFailed(f"process {rank} exited with code {code}", code or 1)


def _run_child(
    requests: Connection, replies: Connection, inherited: Sequence[Connection], device: str
) -> None:
    for end in inherited:
        end.close()
    # In a process group of its own: at Ctrl-C in a terminal, the first process ends the others.
    os.setpgid(0, 0)
    console.set_quiet(True)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    with ending_at_signals():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        _serve(requests, replies, device)


def run_as_rank(ranks: ProcessRanks, device: str, run: Callable[[], None]) -> None:
    """Run a command in the first of the processes that a launcher, such as torchrun, has started.

    The others compute their share of its items. Raises what the command raises, LostProcess if a
    process has ended, and UsageError if this machine has fewer GPUs than processes, or if the
    environment does not have the address of the first one.
    """
    enter_process(ranks)
    own = process_device(device, ranks)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    with connecting():
        store, _, _ = next(rendezvous("env://"))
    if ranks.rank > 0:
        port, key = store.get("port"), store.get("key")
        with Client((os.environ["MASTER_ADDR"], int(port)), authkey=key) as connection:
            connection.send(ranks.rank)
            _serve(connection, connection, str(own))
        return
    key = secrets.token_hex().encode()
    with ExitStack() as stack:
        with Listener(("", 0), backlog=ranks.size, authkey=key) as listener:
            store.set("key", key)
            store.set("port", str(listener.address[1]))
            others = [stack.enter_context(listener.accept()) for _ in range(1, ranks.size)]
        found = {connection.recv(): connection for connection in others}
        peers = [Peer(found[rank], found[rank], partial(_lost, rank)) for rank in sorted(found)]
        with joined(Pool(peers)):
            run()


def _lost(rank: int) -> LostProcess:
    return LostProcess(f"another process of the run has ended (rank {rank})")


def _serve(requests: Connection, replies: Connection, device: str) -> None:
    """Compute what the first process requests, until it closes its end, or has ended.

    One model is kept at a time. An error is sent to the first process, which raises it.
    """
    source = model = None
    with suppress(OSError), ExitStack() as stack:
        stack.push(partial(_send_error, replies))
        while True:
            wanted, compute, numbers = requests.recv()
            if wanted != source:
                source = model = None  # before the next one is loaded: memory holds only one
                model, source = wanted.load(device), wanted
            if compute is not None:
                results = compute(model, numbers)
                for _ in numbers:
                    replies.send((next(results), None))
                next(results, None)  # lets it end what it has started, such as its workers


def _send_error(
    replies: Connection,
    _kind: type[BaseException] | None,
    error: BaseException | None,
    _where: TracebackType | None,
) -> bool:
    """Send an error, whatever it is; one that cannot be pickled becomes a VlcpError."""
    if not isinstance(error, Exception):
        return False
    sent: Exception = VlcpError(f"{type(error).__name__}: {error}")
    with suppress(Exception):
        pickle.dumps(copy.copy(error))  # a copy is made as it is at the other end
        sent = error
    replies.send((None, sent))
    return True
