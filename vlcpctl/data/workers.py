"""Read the items of a dataset in order, in this process or ahead of time in workers."""

from __future__ import annotations

import atexit
import multiprocessing
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from vlcpctl.core.errors import BadInput

Item = TypeVar("Item")


def read_in_order(dataset: Dataset[Item], places: Sequence[int], workers: int) -> Generator[Item]:
    """dataset[place] for every place; the number of workers changes nothing but the time."""
    if workers == 0 or not places:
        yield from (dataset[place] for place in places)
        return
    loader = DataLoader(
        _Carrying(dataset),
        batch_size=None,
        sampler=places,
        num_workers=min(workers, len(places)),
        worker_init_fn=_leave_signals_to_the_parent,
        generator=torch.Generator(),  # else the loader draws from the global one
    )
    atexit.unregister(_kill_workers)  # once is enough, and last in is first out
    atexit.register(_kill_workers)
    items = iter(loader)
    try:
        for item in items:
            if isinstance(item, BadInput):
                raise item
            yield item
    finally:
        del items  # the workers end with it, also when the reader stops early


@dataclass
class _Carrying(Dataset["Item | BadInput"], Generic[Item]):
    """The same items; an error comes as a value, since a worker would wrap it in its traceback."""

    dataset: Dataset[Item]

    def __getitem__(self, place: int) -> Item | BadInput:
        try:
            return self.dataset[place]
        except BadInput as error:
            return error


def _leave_signals_to_the_parent(_worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _kill_workers() -> None:
    """At exit multiprocessing would send its daemons a SIGTERM, which they ignore, and wait."""
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
