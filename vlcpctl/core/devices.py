"""The device given with --device, and its arithmetic."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vlcpctl.core.errors import UsageError

_CPUINFO = Path("/proc/cpuinfo")  # of Linux
_CUDA = re.compile("cuda(?::([0-9]{1,2}))?")
_PACKAGES = ("torch", "open_clip_torch", "timm", "transformers", "tokenizers", "pillow", "numpy")
# Told beside the name of a processor, which a virtual machine may make up.
_MODEL = ("cpu family", "model", "CPU implementer", "CPU part")
_VECTORS = ("amx", "asimd", "avx", "bf16", "f16c", "fma", "i8mm", "sse4", "sve")
# By these variables oneDNN, MKL and cuBLAS compute otherwise than the device would let them.
_OF_LIBRARIES = (
    *("DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS"),
    *("NVIDIA_TF32_OVERRIDE", "ONEDNN_MAX_CPU_ISA"),
)


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


def set_arithmetic(*, tf32: bool, times_convolutions: bool = False) -> None:
    """Set how GPUs multiply and convolve in float32, for the whole process.

    With `tf32` both round their inputs to TF32, with 10 bits of mantissa; else neither does (by
    default torch convolves in TF32). Convolutions use the same deterministic algorithm in every
    run, so that a run resumes with the same numbers; with `times_convolutions` that which is the
    fastest in a trial.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = times_convolutions
    torch.backends.cudnn.deterministic = not times_convolutions


def arithmetic_facts(device: torch.device) -> dict[str, Any]:
    """What decides the last bits of results on a device, beside the options of a command.

    Libraries choose their kernels by the GPU, or by the processor and its instructions. Images and
    texts are prepared by the packages.
    """
    is_gpu = device.type == "cuda"
    told = {name: os.environ[name] for name in _OF_LIBRARIES if name in os.environ}
    versions = {name: version(name) for name in _PACKAGES}
    return {
        **({"device": torch.cuda.get_device_name(device)} if is_gpu else _processor()),
        **({"environment": told} if told else {}),
        "versions": {**versions, "torch": torch.__version__},  # with the build, such as +cpu
    }


def _processor() -> dict[str, str]:
    """The first processor and its vector instructions, and those that torch uses."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    name = facts.get("model name", platform.machine())
    model = ", ".join(f"{part} {facts[part]}" for part in _MODEL if part in facts)
    flags = sorted(facts.get("flags", facts.get("Features", "")).split())
    return {
        "device": f"{name} ({model})" if model else name,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "vectors": " ".join(flag for flag in flags if flag.startswith(_VECTORS)),
    }
