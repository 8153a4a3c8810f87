"""The precision of `--precision auto`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vlcpctl.training.config.request import Request

# Files of the drivers of NVIDIA and AMD GPUs, also in containers and under WSL.
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/kfd", "/dev/dxg")


def with_precision(request: Request) -> Request:
    """The request with `auto` replaced by the precision that its device has.

    Imports torch only where there is a GPU that could have bfloat16.
    """
    if request.settings.precision != "auto":
        return request
    settings = replace(request.settings, precision=_best(request.device))
    return replace(request, settings=settings)


def _best(device: str) -> str:
    """`bf16` on a GPU that computes in bfloat16, else `fp32`."""
    # A dry run must answer at once, and torch takes seconds to import.
    if device == "cpu" or not any(Path(driver).exists() for driver in _DRIVERS):
        return "fp32"
    import torch

    # Emulated, it would be slower than fp32.
    has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"
