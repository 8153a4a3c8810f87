"""A pool of processes: the first one runs the command, the others compute a share of its items.

Items, such as batches of images, are numbered. Process k of N computes every N-th one, starting
with number k, and the first process gets the results in order. An item is never divided, because
the last bits of an embedding may depend on the other rows of its batch: so results are the same
for any number of processes. Only the first process reads options, prints and writes. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

from vlcpctl.distributed.serving import Channel, Computation, Reply, Source, Work

Model = TypeVar("Model")
Result = TypeVar("Result")


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
