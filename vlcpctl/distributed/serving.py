"""What the processes of a pool send each other, and what those do that serve the first one.

Torch-free.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from vlcpctl.core.errors import VlcpError

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
