"""--workers auto: none on a CPU; on a GPU this process's share of the cores, but one."""

from __future__ import annotations

import os

import pytest
import torch

from vlcpctl.core import gpu
from vlcpctl.core.gpu import in_words, worker_count


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize(
    ("cores", "processes", "expected"), [(4, 1, 3), (96, 1, 64), (16, 4, 3), (2, 8, 1)]
)
def test_on_a_gpu_workers_share_the_cores(
    cores: int, processes: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert worker_count(None, "auto") == worker_count(None, "cuda:1") == expected
    assert worker_count(None, "cpu") == 0
    assert worker_count(3, "auto") == 3
    assert worker_count(0, "auto") == 0
    assert in_words(0, "auto") == "device cuda, no workers"


def test_without_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "DRIVERS", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: 1 / 0)  # torch is not even asked
    assert worker_count(None, "auto") == 0
