"""The device given with --device, and its arithmetic."""

from __future__ import annotations

import re

import torch

from vlcpctl.core.errors import UsageError

_CUDA = re.compile("cuda(?::([0-9]{1,2}))?")


def torch_device(name: str) -> torch.device:
    """The torch device of `auto`, `cpu`, `cuda` or `cuda:N`; `auto` is a GPU if there is one.

    Raises UsageError for any other name, and for a GPU that this machine does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device(name)
    gpu = _CUDA.fullmatch(name)
    if gpu is None:
        raise UsageError(f"--device {name} is not a device; use auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise UsageError(f"--device {name}: CUDA is not available; use --device cpu")
    count = torch.cuda.device_count()
    if int(gpu[1] or 0) >= count:
        raise UsageError(f"--device {name}: this machine has only cuda:0 to cuda:{count - 1}")
    return torch.device(name)


def set_arithmetic(*, tf32: bool) -> None:
    """Set how GPUs multiply and convolve in float32, for the whole process.

    With `tf32` both round their inputs to TF32, with 10 bits of mantissa; else neither does (by
    default torch convolves in TF32). Convolutions use the same deterministic algorithm in every
    run, so that a run resumes with the same numbers.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
