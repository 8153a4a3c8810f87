"""Workers end with the process that reads from them, however it ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from torch.utils.data import Dataset
from vlcpctl.data.loading.workers import read_in_order

class Numbers(Dataset):
    def __getitem__(self, place):
        return place

items = read_in_order(Numbers(), range(100), 2)
print(next(items), next(items))
"""


def test_a_reader_that_stops_early_does_not_wait_for_its_workers() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "0 1\n"
