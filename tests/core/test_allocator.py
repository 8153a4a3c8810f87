"""Memory that is freed and allocated again is not cleared by the kernel a second time."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

_PAGES_OF_THREE = """
import resource, sys, torch
if sys.argv[1] == "kept":
    from vlcpctl.core.allocator import keep_freed_memory
    keep_freed_memory()
torch.ones(3 << 23)  # 96 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(3 << 23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    command = [sys.executable, "-c", _PAGES_OF_THREE, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has mallopt")
def test_freed_memory_is_used_again() -> None:
    pages = 3 * (96 << 20) // resource.getpagesize()
    given_back, kept = _faults("given back"), _faults("kept")
    if given_back < pages // 1024:
        pytest.skip("this allocator keeps freed memory by itself")
    assert kept < given_back / 8
