"""Memory that is freed and allocated again is not cleared by the kernel a second time."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PAGES_OF_STEPS = """
import resource, sys, torch
if sys.argv[1] == "kept":
    from vlcpctl.core.process_memory import keep_freed_memory
    keep_freed_memory()
faults = []
for step in range(16):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.empty(megabytes << 18).fill_(1) for megabytes in (4, 8, 40, 16, 40, 2)]
    del tensors
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[-6:]))
"""


def _faults(how: str) -> int:
    """The page faults of one of the last of many equal steps, the least."""
    command = [sys.executable, "-c", _PAGES_OF_STEPS, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has mallopt")
def test_freed_memory_is_used_again() -> None:
    given_back = _faults("given back")
    if given_back < 1000:
        pytest.skip("this allocator keeps freed memory by itself")
    assert _faults("kept") < given_back / 2
