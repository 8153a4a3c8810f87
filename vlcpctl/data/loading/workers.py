"""Read the items of a dataset in order, in this process or prefetched by worker processes."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from vlcpctl.core.ending import SIGNALS, at_signal, held_signals
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import is_lost_worker, lost_worker_text

Item = TypeVar("Item")


def read_in_order(
    dataset: Dataset[Item],
    indices: Sequence[int],
    workers: int,
    *,
    pins: bool = False,
    ahead: int = 2,
) -> Generator[Item]:
    """Yield dataset[place] for every place, in order; the number of workers changes only the speed.

    With `pins`, a thread moves what workers have read to pinned memory, which a GPU can copy from
    while the CPU does other work; items must be tensors or have a method `pin_memory`. Without
    workers nothing is pinned. Each worker reads up to `ahead` items before they are asked for: with
    one, a worker that is done would wait for the consumer. A VlcpError raised in a worker is raised
    here, with its own message; so is one if a worker is killed.
    """
    if workers == 0 or not indices:
        yield from (dataset[place] for place in indices)
        return
    loader = DataLoader(
        _ErrorsAsItems(dataset),
        batch_size=None,
        sampler=indices,
        num_workers=min(workers, len(indices)),
        worker_init_fn=_start_worker,
        pin_memory=pins,
        prefetch_factor=ahead,
        # Forked, a worker has the dataset without a copy. Where the parent uses CUDA, a fork must
        # not: see `_start_worker`.
        multiprocessing_context="fork" if sys.platform == "linux" else None,
        # Without a generator of its own, the loader would draw its base seed from torch's global
        # one, and results would depend on the number of workers.
        generator=torch.Generator(),
    )
    # Registered once, and late: exit handlers run last in, first out, and this one must run before
    # multiprocessing's own.
    atexit.unregister(_kill_workers)
    atexit.register(_kill_workers)
    with held_signals():  # until the workers ignore them
        items = iter(loader)
    lost: str | None = None
    with at_signal(_kill_workers):
        try:
            for item in items:
                if isinstance(item, VlcpError):
                    raise item
                yield item
        except (ConnectionError, EOFError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_lost_worker(error):
                raise
            lost = lost_worker_text(error)
        finally:
            del items  # ends the workers, also when the consumer stops early
    if lost is not None:
        # Raised without its cause, which would keep the loader alive: its connection to a worker
        # breaks before the worker's end is signalled, and then torch would raise a second error
        # wherever the program is by then.
        raise VlcpError(lost)


@dataclass
class _ErrorsAsItems(Dataset["Item | VlcpError"], Generic[Item]):
    """The same items, with a VlcpError returned as a value.

    DataLoader would otherwise put the worker's traceback into the message.
    """

    dataset: Dataset[Item]

    def __getitem__(self, place: int) -> Item | VlcpError:
        try:
            return self.dataset[place]
        except VlcpError as error:
            return error


def _start_worker(_worker: int) -> None:
    """Ignore the signals that a terminal or scheduler sends to the whole process group.

    The parent handles them: it finishes its step and saves its state, which needs live workers.
    Whatever a worker imports later finds no GPU: a CUDA context of its own would take memory of the
    GPU, and one of the parent's cannot be used in a fork.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _kill_workers() -> None:
    """Kill remaining workers: multiprocessing would send SIGTERM, which they ignore, and wait."""
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
