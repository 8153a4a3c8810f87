"""torch is imported without garbage collection, which goes on afterwards; a stand-in for torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCH = """
import gc, sys
from vlcpctl.core import torch_import
found = len(sys.meta_path)
torch_import.speed_up()
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
    ("last", "printed"),
    [("", "100000 True\n0 True True 0"), ("raise ValueError('broken')", "broken\n0 True")],
)
def test_nothing_is_collected_while_torch_is_imported(
    tmp_path: Path, last: str, printed: str
) -> None:
    (tmp_path / "torch.py").write_text(f"KEPT = [[n] for n in range(100_000)]\n{last}\n", "utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", WATCH],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.stdout.startswith(printed), ended.stdout
