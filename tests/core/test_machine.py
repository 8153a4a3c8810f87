"""What this machine has: cores for workers, memory, and torch imported without the collector."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from vlcpctl.core import machine
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import (
    in_words,
    is_about_limits,
    limit_text,
    peak_memory,
    require_threads,
    threads_of,
    worker_count,
)


def printed(code: str, *words: str, **environment: str) -> str:
    """What a program of its own prints."""
    command = [sys.executable, "-c", code, *words]
    given = {**os.environ, **environment}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=given).stdout


@pytest.mark.parametrize(
    ("cores", "processes", "expected"), [(4, 1, 3), (96, 1, 64), (16, 4, 3), (2, 8, 1)]
)
def test_on_a_gpu_workers_share_the_cores(
    cores: int, processes: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert worker_count(None, "auto") == worker_count(None, "cuda:1") == expected
    assert worker_count(None, "cpu") == worker_count(0, "auto") == 0
    assert worker_count(3, "auto") == 3
    assert in_words(0, "auto") == "device cuda, no workers"


@pytest.mark.parametrize(
    ("granted", "processes", "expected"),
    [
        *(("max 100000", 1, 8), ("250000 100000", 1, 3), ("max 100000", 2, 4)),
        *(("50000 100000", 4, 1), ("max 100000", 0, 8)),
    ],
)
def test_threads_auto_are_the_cores_of_the_process(
    granted: str, processes: int, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/cpu.max").write_text(granted)
    (tmp_path / "cgroup").write_text("1:cpu:/\n0::/a/b\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert threads_of(processes) == expected


def test_without_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DRIVERS", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: 1 / 0)  # torch is not even asked
    assert worker_count(None, "auto") == 0


PEAKS = """
from vlcpctl.core.machine import peak_memory
before = peak_memory()["process"]
block = bytearray(b"x" * 30_000_000)
del block
print(before, peak_memory()["process"])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_peak_is_of_the_process_not_of_the_one_that_it_was_started_from() -> None:
    ballast = bytearray(b"x" * 120_000_000)  # of this process, which starts the other
    before, after = map(int, printed(PEAKS).split())
    assert len(ballast) > before
    assert 25_000_000 < after - before < 80_000_000


def test_a_system_without_the_figure_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_STATUS", tmp_path / "missing")
    assert "process" not in peak_memory()


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "ulimit"),
        (RuntimeError("a\ncan't start new thread\nb"), "(can't start new thread)"),
        (ImportError("x.so: failed to map segment from shared object"), "ulimit"),
        (RuntimeError("DataLoader worker (pid 7) is killed"), "--workers"),
        (RuntimeError("unable to open file <x>: Too many open files (24)"), "ulimit -n"),
    ],
)
def test_a_limit_is_one_line_with_the_option_to_change(error: Exception, word: str) -> None:
    assert is_about_limits(error)
    assert word in limit_text(error)
    assert not is_about_limits(ValueError("shapes differ"))


def test_threads_that_cannot_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    require_threads()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 40, 1 << 40))
    with pytest.raises(VlcpError, match="ulimit"):
        require_threads()


WATCH = """
import gc, sys
from vlcpctl.core import machine
found = len(sys.meta_path)
machine.speed_up_torch()
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
try:
    import torch
    print(len(torch.KEPT), torch.__file__.endswith("torch.py"))
except ValueError as error:
    print(error)
print(len(seen), gc.isenabled(), gc.get_freeze_count() > 100_000, len(sys.meta_path) - found)
"""


@pytest.mark.parametrize(
    ("last", "said"),
    [("", "100000 True\n0 True True 0"), ("raise ValueError('broken')", "broken\n0 True")],
)
def test_nothing_is_collected_while_torch_is_imported(tmp_path: Path, last: str, said: str) -> None:
    (tmp_path / "torch.py").write_text(f"KEPT = [[n] for n in range(100_000)]\n{last}\n", "utf-8")
    assert printed(WATCH, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])).startswith(said)


PAGES_OF_STEPS = """
import resource, sys, torch
if sys.argv[1] == "kept":
    from vlcpctl.core.machine import keep_freed_memory
    keep_freed_memory()
faults = []
for step in range(16):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.empty(megabytes << 18).fill_(1) for megabytes in (4, 8, 40, 16, 40, 2)]
    del tensors
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[-6:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has mallopt")
def test_freed_memory_is_used_again() -> None:
    given_back = int(printed(PAGES_OF_STEPS, "given back"))
    if given_back < 1000:
        pytest.skip("this allocator keeps freed memory by itself")
    assert int(printed(PAGES_OF_STEPS, "kept")) < given_back / 2
