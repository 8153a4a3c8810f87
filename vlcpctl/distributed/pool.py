"""A pool of processes: the first one runs the command, the others compute a share of its items.

Items, such as batches of images, are numbered. Process k of N computes every N-th one, starting
with number k, and the first process gets the results in order. An item is never divided, because
the last bits of an embedding may depend on the other rows of its batch: so results are the same
for any number of processes. Only the first process reads options, prints and writes. Torch-free.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, final

from vlcpctl.core.errors import VlcpError

Model = TypeVar("Model")
Result = TypeVar("Result")
Made_co = TypeVar("Made_co", covariant=True)
Used_contra = TypeVar("Used_contra", contravariant=True)


class Source(Protocol[Made_co]):
    """Where a model comes from: a dataclass that can be pickled, and compared with another one."""

    def load(self, device: str) -> Made_co:
        """The model on a device; called once in each process that uses it."""
        ...


class Work(Protocol[Used_contra, Made_co]):
    """Items that any process can compute by their numbers; it can be pickled."""

    def share(self, numbers: Sequence[int]) -> Work[Used_contra, Made_co]:
        """The same work with what these items need; the rest may be left out."""
        ...

    def results(self, model: Used_contra, numbers: Sequence[int]) -> Iterator[Made_co]:
        """Yield the result of each item, in the order of `numbers`."""
        ...


class Channel(Protocol):
    """Carries objects between the first process and another one."""

    def send(self, message: object) -> None:
        """Send an object that can be pickled. Raises VlcpError if the other process has ended."""
        ...

    def receive(self) -> Any:
        """Wait for an object. Raises VlcpError if the other process has ended."""
        ...


@dataclass(frozen=True)
class Computation:
    """The numbers of the items to compute with a model; without `work` it is only loaded."""

    source: Source[Any]
    work: Work[Any, Any] | None = None
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Reply:
    """The result of one item, or the error that it raised."""

    result: Any = None
    error: BaseException | None = None


@final
class Pool:
    """The processes as seen by the first one; `channels` lead to the others, in order of rank."""

    def __init__(self, channels: Sequence[Channel] = ()) -> None:
        self._channels = channels
        self._is_busy = False

    def load(self, source: Source[Model], device: str) -> Model:
        """The model on this process's device, loaded by the other processes at the same time."""
        for channel in self._channels:
            channel.send(Computation(source))
        return source.load(device)

    def results(
        self,
        source: Source[Model],
        model: Model,
        work: Work[Model, Result],
        numbers: Sequence[int],
    ) -> Iterator[Result]:
        """Yield the results of the items in order; `model` is what `source` loads.

        Raises what an item raises, in any process, and VlcpError if a process ends.
        """
        size = len(self._channels) + 1
        self._is_busy = True
        for rank, channel in enumerate(self._channels, start=1):
            share = numbers[rank::size]
            if share:
                channel.send(Computation(source, work.share(share), share))
        own = work.results(model, numbers[::size])
        for place in range(len(numbers)):
            rank = place % size
            yield next(own) if rank == 0 else _result(self._channels[rank - 1].receive())
        next(own, None)  # lets it end what it has started, such as its workers
        self._is_busy = False

    def close(self) -> None:
        """Let the other processes end, unless an error has left one with results to send.

        That one would not receive anything; it ends when it finds that this process has ended.
        """
        if not self._is_busy:
            for channel in self._channels:
                channel.send(None)


ALONE = Pool()
_joined: list[Pool] = []  # in the first of the processes that a launcher started: their pool


@contextmanager
def joined(pool: Pool) -> Iterator[None]:
    """Within the block, `pool_of` is this pool."""
    _joined.append(pool)
    try:
        yield
    finally:
        _joined.pop()


@contextmanager
def pool_of(size: int, device: str, preload: Callable[[], object]) -> Iterator[Pool]:
    """A pool of this process and `size` - 1 others, which end with the block.

    If a launcher has started the processes, they are those. `preload` imports what each process
    would otherwise import again. Raises UsageError if there are fewer GPUs than processes.
    """
    if _joined or size == 1:
        yield _joined[-1] if _joined else ALONE
        return
    from vlcpctl.distributed.pool_children import start_children

    with start_children(size, device, preload) as channels:
        yield Pool(channels)


def _result(reply: Reply) -> Any:
    if reply.error is not None:
        raise reply.error
    return reply.result


def serve(channel: Channel, device: str) -> None:
    """In another process than the first: compute what is requested, until None is received.

    One model is kept at a time. Raises VlcpError if the first process has ended.
    """
    source: Source[Any] | None = None
    model: Any = None
    while (request := channel.receive()) is not None:
        if request.source != source:
            source = model = None  # before the next one is loaded, so that memory holds only one
            with _Caught() as caught:
                model, source = request.source.load(device), request.source
            if caught.error is not None:
                if request.work is not None:  # the first process waits for a result
                    channel.send(_failure(caught.error))
                continue
        if request.work is not None:
            for reply in _replies(request.work, model, request.numbers):
                channel.send(reply)


def _replies(work: Work[Any, Any], model: Any, numbers: Sequence[int]) -> Iterator[Reply]:
    """The result of each item; the first error is the last reply."""
    results = work.results(model, numbers)
    for _ in numbers:
        with _Caught() as caught:
            reply = Reply(next(results))
        if caught.error is not None:
            yield _failure(caught.error)
            return
        yield reply
    next(results, None)  # lets it end what it has started, such as its workers


class _Caught:
    """Stops an error of the block, whatever it is, and keeps it: the first process raises it."""

    error: Exception | None = None

    def __enter__(self) -> _Caught:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


def _failure(error: Exception) -> Reply:
    """The error as it can be sent; one that cannot be pickled becomes a VlcpError."""
    with _Caught() as caught:
        copy.copy(error)  # as it is made again at the other end
        pickle.dumps(error)
    if caught.error is not None:
        return Reply(error=VlcpError(f"{type(error).__name__}: {error}"))
    return Reply(error=error)
