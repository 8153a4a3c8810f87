"""Workers end with the process that reads from them, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from support.processes import exit_code_of, start_child
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import is_about_limits, limit_text
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


class Mortal(Dataset[Tensor]):
    """Its places, and at one of them the worker is killed."""

    def __getitem__(self, place: int) -> Tensor:
        if place == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(place)


def said_by(read: Callable[[], object], file: Path) -> str:
    """The message with which reading ends, in a process of its own: torch handles SIGCHLD there."""

    def act(_: int) -> None:
        try:
            read()
        except VlcpError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            file.write_text(str(error))
        except RuntimeError as error:  # raised outside of the reader, as the program does
            file.write_text(limit_text(error) if is_about_limits(error) else "")

    assert exit_code_of(start_child(act)) == 0
    return file.read_text()


def test_a_killed_worker_is_one_error_when_its_signal_comes_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to a killed worker breaks before the parent gets SIGCHLD.

    torch's handler of it raises an error: here the signal comes only while the first is reported.
    """

    def read() -> None:  # in a process of its own
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        items = read_in_order(Mortal(), range(4), 1)
        next(items)
        (worker,) = multiprocessing.active_children()
        os.waitid(os.P_PID, worker.pid or 0, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(BaseProcess, "is_alive", lambda _: True)  # as torch may find it
        list(items)

    said = said_by(read, tmp_path / "said")
    assert said.startswith("a worker process ended (")
    assert said.endswith("; if memory ran out, use fewer --workers")


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
