"""The peak memory of a process, not of the one that it was started from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vlcpctl.core import process_memory as module
from vlcpctl.core.process_memory import peak_memory

_CODE = """
from vlcpctl.core.process_memory import peak_memory
before = peak_memory()["process"]
block = bytearray(b"x" * 30_000_000)
del block
print(before, peak_memory()["process"])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_peak_stays_when_memory_is_freed() -> None:
    ballast = bytearray(b"x" * 120_000_000)  # of this process, which starts the other
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert len(ballast) > before
    assert 25_000_000 < after - before < 80_000_000


def test_a_system_without_the_figure_leaves_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STATUS", tmp_path / "missing")
    monkeypatch.setattr(module, "_device", lambda: None)
    assert peak_memory() == {}
