"""Workers end with the process that reads from them, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.data.loading import workers
from vlcpctl.data.loading.workers import read_in_order

PROGRAM = """
from torch.utils.data import Dataset
from vlcpctl.data.loading.workers import read_in_order

class Numbers(Dataset):
    def __getitem__(self, place):
        return place

items = read_in_order(Numbers(), range(100), 2)
print(next(items), next(items))
"""


KILLED = """
import os, signal, torch
from torch.utils.data import Dataset
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import is_about_limits, limit_text
from vlcpctl.data.loading.workers import read_in_order

class Mortal(Dataset):
    def __getitem__(self, place):
        if place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return {item}

try:
    list(read_in_order(Mortal(), range(4), 1))
except VlcpError as error:
    print(error)
except RuntimeError as error:  # raised outside of the reader, as the program does
    assert is_about_limits(error)
    print(limit_text(error))
"""


@pytest.mark.parametrize("item", ["place", "torch.tensor(place)"])
def test_a_killed_worker_is_an_error_of_one_line(item: str) -> None:
    program = KILLED.replace("{item}", item)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    (line,) = ended.stdout.splitlines()
    assert line.startswith("a worker process ended (")
    assert line.endswith("; if memory ran out, use fewer --workers")


# The connection to a killed worker breaks before the parent gets SIGCHLD, whose handler by torch
# raises an error: here it gets the signal only when it reports the first error.
LATE_SIGNAL = """
import multiprocessing, os, signal, torch
from torch.utils.data import Dataset
from vlcpctl.core.errors import VlcpError
from vlcpctl.data.loading.workers import read_in_order

class Mortal(Dataset):
    def __getitem__(self, place):
        if place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(place)

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
items = read_in_order(Mortal(), range(4), 1)
next(items)
(worker,) = multiprocessing.active_children()
os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
multiprocessing.process.BaseProcess.is_alive = lambda _: True  # as torch may still find it
try:
    list(items)
except VlcpError as error:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    print(error)
"""


def test_a_killed_worker_is_one_error_when_its_signal_comes_late() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LATE_SIGNAL], capture_output=True, text=True, check=True, timeout=120
    )
    (line,) = ended.stdout.splitlines()
    assert line.startswith("a worker process ended (")


def test_a_reader_that_stops_early_does_not_wait_for_its_workers() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "0 1\n"


class Places(Dataset[Tensor]):
    """Each item is its place, and whether its process may see GPUs."""

    def __getitem__(self, place: int) -> Tensor:
        return torch.tensor([place, os.environ.get("CUDA_VISIBLE_DEVICES") == ""])


def test_a_worker_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it inherit that from its parent: what it does not touch, it need not know of."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    found = [item.tolist() for item in read_in_order(Places(), range(4), 2)]
    assert found == [[place, 1] for place in range(4)]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("pins", [True, False])
def test_a_thread_pins_what_workers_read(monkeypatch: pytest.MonkeyPatch, *, pins: bool) -> None:
    seen: list[object] = []

    class Loader:
        def __init__(self, *_: object, pin_memory: bool, **how: object) -> None:
            seen.append((pin_memory, how["multiprocessing_context"]))

        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> Tensor:
            raise StopIteration

    monkeypatch.setattr(workers, "DataLoader", Loader)
    assert list(read_in_order(Places(), range(4), 2, pins=pins)) == []
    assert seen == [(pins, "fork")]
