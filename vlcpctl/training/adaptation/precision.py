"""The precision of `--precision auto`."""

from __future__ import annotations

from dataclasses import replace

from vlcpctl.core.gpu import is_gpu
from vlcpctl.training.config.request import TrainRequest


def with_precision(request: TrainRequest) -> TrainRequest:
    """The request with `auto` replaced by the precision that its device has.

    Imports torch only where there is a GPU that could have bfloat16.
    """
    if request.settings.precision != "auto":
        return request
    settings = replace(request.settings, precision=_best(request.device))
    return replace(request, settings=settings)


def _best(device: str) -> str:
    """`bf16` on a GPU that computes in bfloat16, else `fp32`."""
    if not is_gpu(device):
        return "fp32"
    import torch

    # Emulated, it would be slower than fp32.
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
