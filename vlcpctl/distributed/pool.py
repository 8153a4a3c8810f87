"""A pool of processes: the first one runs the command, the others compute a share of its items.

Items, such as batches of images, are numbered. Process k of N computes every N-th one, starting
with number k, and the first process gets the results in order. An item is never divided, because
the last bits of an embedding may depend on the other rows of its batch: so results are the same
for any number of processes. Only the first process reads options, prints and writes. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar, final

from vlcpctl.core.errors import VlcpError

Model = TypeVar("Model")
Model_co = TypeVar("Model_co", covariant=True)
Result = TypeVar("Result")
Compute = Callable[[Model, Sequence[int]], Iterator[Result]]  # the results of items; is pickled


class Source(Protocol[Model_co]):
    """Where a model comes from: a dataclass that can be pickled, and compared with another one."""

    def load(self, device: str) -> Model_co:
        """The model on a device; called once in each process that uses it."""
        ...


@final
@dataclass(frozen=True)
class Peer:
    """Another process of a pool: the connections to it and from it, and the error of its end."""

    requests: Connection
    replies: Connection
    lost: Callable[[], VlcpError]

    def request(
        self,
        source: Source[Any],
        compute: Compute[Any, Any] | None = None,
        numbers: Sequence[int] = (),
    ) -> None:
        """Ask for the results of items with a model; without `compute`, it is only loaded."""
        with suppress(OSError):  # if it has ended, `result` says why
            self.requests.send((source, compute, numbers))

    def result(self) -> Any:
        """Wait for the next result. Raises what the process raises, or `lost` if it has ended."""
        try:
            result, error = self.replies.recv()
        except (EOFError, OSError) as end:
            raise self.lost() from end
        if error is not None:
            raise error
        return result


@final
class Pool:
    """The processes as seen by the first one; `peers` are the others, in order of rank."""

    def __init__(self, peers: Sequence[Peer] = ()) -> None:
        self._peers = peers

    def load(self, source: Source[Model], device: str) -> Model:
        """The model on this process's device, loaded by the other processes at the same time."""
        for peer in self._peers:
            peer.request(source)
        return source.load(device)

    def results(
        self,
        source: Source[Model],
        model: Model,
        compute: Compute[Model, Result],
        numbers: Sequence[int],
    ) -> Iterator[Result]:
        """Yield the results of the items in order; `model` is what `source` loads.

        Raises what an item raises, in any process, and VlcpError if a process ends.
        """
        size = len(self._peers) + 1
        for rank, peer in enumerate(self._peers, start=1):
            if share := numbers[rank::size]:
                peer.request(source, compute, share)
        own = compute(model, numbers[::size])
        for place in range(len(numbers)):
            rank = place % size
            yield next(own) if rank == 0 else self._peers[rank - 1].result()
        next(own, None)  # lets it end what it has started, such as its workers


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
    from vlcpctl.distributed.peers import start_peers

    with start_peers(size, device, preload) as peers:
        yield Pool(peers)
