"""Files of tensors are files as any other: their mode is that of the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import torch

from vlcpctl.files.tensors import read_tensors, write_tensors


def test_others_may_read_what_the_umask_lets_them_read(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    before = os.umask(0o027)
    try:
        for value in (1.0, 2.0):  # new, and again
            write_tensors(path, {"a": torch.full((2,), value)})
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            assert read_tensors(path)["a"].tolist() == [value, value]
    finally:
        os.umask(before)
