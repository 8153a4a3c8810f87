"""Copies what is read to a GPU one item ahead, on a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Item = TypeVar("Item")
Move = Callable[[Tensor], Tensor]


def copied_ahead(
    items: Iterable[Item], device: torch.device, move: Callable[[Item, Move], Item]
) -> Generator[Item]:
    """The items with their tensors on the device; on the CPU they stay what they are.

    `move(item, copy)` returns the item with `copy` applied to its tensors. On a GPU the copy of an
    item is started before the one before it is yielded, from pinned memory and on a stream of its
    own, so that it takes no time of the consumer's kernels. At most two items wait on the device
    beside the one in use: the consumer may run ahead of the GPU by one item, not by more.
    Closing the generator closes `items`, which may have workers.
    """
    with closing(items) if isinstance(items, Generator) else nullcontext():
        if device.type == "cpu":
            yield from items
        elif device.type == "cuda":
            yield from _on_stream(items, device, move)
        else:
            for item in items:
                yield move(item, lambda tensor: to_device(tensor, device))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; a copy from the CPU to a GPU does not stop the CPU."""
    if device.type == "cpu" or tensor.device.type != "cpu":
        return tensor.to(device)
    # From memory that is not pinned, the copy would first wait for all work of the stream.
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def to_host(parts: Iterable[Tensor]) -> Iterator[NDArray[np.generic]]:
    """The parts as arrays, in order.

    On a GPU, an array is yielded once the next part is being computed: waiting for it at once would
    leave the GPU without work.
    """
    waiting: _ToHost | None = None
    for part in parts:
        if part.device.type == "cuda":
            started = _ToHost(part)
            if waiting is not None:
                yield waiting.array()
            waiting = started
        else:
            yield part.cpu().numpy()
    if waiting is not None:
        yield waiting.array()


class _ToHost:
    """The copy of a tensor from a GPU into pinned memory, started when this is made."""

    def __init__(self, tensor: Tensor) -> None:
        self.pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self.pinned.copy_(tensor, non_blocking=True)
        self.end = torch.cuda.Event()
        self.end.record(torch.cuda.current_stream(tensor.device))

    def array(self) -> NDArray[np.generic]:
        """The values, once they are there, in memory that is not pinned."""
        self.end.synchronize()
        array: NDArray[np.generic] = self.pinned.numpy().copy()
        return array


def _on_stream(
    items: Iterable[Item], device: torch.device, move: Callable[[Item, Move], Item]
) -> Generator[Item]:
    copies = _Copies(device)
    waiting: tuple[Item, _Copied] | None = None
    for item in items:
        copied = copies.start()
        moved = move(item, copied.copy)
        copied.finish()
        if waiting is not None:
            yield waiting[1].usable(waiting[0])
            copies.consumed()
        waiting = moved, copied
    if waiting is not None:
        yield waiting[1].usable(waiting[0])


class _Copies:
    """A stream for copies, and how far the consumer's stream has got."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self._done: Any = None

    def start(self) -> _Copied:
        return _Copied(self)

    def consumed(self) -> None:
        """Wait until the GPU has done all but the work of the item just consumed.

        Without it the consumer could start hundreds of steps ahead of the GPU, and the memory of
        each one's copies would be held until the GPU has got there.
        """
        before, self._done = self._done, torch.cuda.Event(blocking=True)
        self._done.record(torch.cuda.current_stream(self.device))
        if before is not None:
            before.synchronize()


class _Copied:
    """The copies of one item's tensors."""

    def __init__(self, copies: _Copies) -> None:
        self.copies, self.tensors = copies, list[Tensor]()
        self._end = torch.cuda.Event()

    def copy(self, tensor: Tensor) -> Tensor:
        """Start to copy a tensor to the device; one that is there stays."""
        if tensor.device.type == "cuda":
            return tensor
        with torch.cuda.stream(self.copies.stream):
            copied = to_device(tensor, self.copies.device)
        self.tensors.append(copied)
        return copied

    def finish(self) -> None:
        """Mark the end of the item's copies."""
        self._end.record(self.copies.stream)

    def usable(self, item: Item) -> Item:
        """The item, once its copies are ordered before the work of the consumer's stream."""
        consumer = torch.cuda.current_stream(self.copies.device)
        # Of this item alone: waiting for the whole stream would wait for the next item's copies.
        consumer.wait_event(self._end)
        for tensor in self.tensors:
            # The memory belongs to the stream of copies, which would reuse it for the next item
            # while the consumer's kernels still read it.
            tensor.record_stream(consumer)
        return item
