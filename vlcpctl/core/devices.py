"""The device that an option names."""

from __future__ import annotations

import torch

from vlcpctl.core.errors import UsageError


def torch_device(name: str) -> torch.device:
    """`auto` is a GPU where torch sees one; asking for one that is not there is an error."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and not name.startswith("cuda"):
        raise UsageError(f"--device {name}: not a device; auto, cpu or cuda")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {name}: torch sees no CUDA device here; --device cpu works")
    return torch.device(name)
