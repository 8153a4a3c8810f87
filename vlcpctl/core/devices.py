"""The device given with --device, its arithmetic, and copies to it that are one item ahead."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcpctl.core.errors import UsageError

Item = TypeVar("Item")
Move = Callable[[Tensor], Tensor]

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


def copied_ahead(
    items: Iterable[Item], device: torch.device, move: Callable[[Item, Move], Item]
) -> Generator[Item]:
    """The items with their tensors on the device; on the CPU they stay what they are.

    `move(item, copy)` returns the item with `copy` applied to its tensors. On a GPU the copy of an
    item is started before the one before it is yielded, from pinned memory and on a stream of its
    own, so that it takes no time of the consumer's kernels. At most two items wait on the device
    beside the one in use: the consumer may run ahead of the GPU by one item, not by more.
    Closing the generator closes `items`, which may have workers.
    """
    with closing(items) if isinstance(items, Generator) else nullcontext():
        if device.type == "cpu":
            yield from items
        elif device.type == "cuda":
            yield from _on_stream(items, device, move)
        else:
            for item in items:
                yield move(item, lambda tensor: to_device(tensor, device))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; a copy from the CPU to a GPU does not stop the CPU."""
    if device.type == "cpu" or tensor.device.type != "cpu":
        return tensor.to(device)
    # From memory that is not pinned, the copy would first wait for all work of the stream.
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def to_host(parts: Iterable[Tensor]) -> Iterator[NDArray[np.generic]]:
    """The parts as arrays, in order.

    On a GPU, an array is yielded once the next part is being computed: waiting for it at once would
    leave the GPU without work.
    """
    waiting: tuple[Tensor, torch.cuda.Event] | None = None
    for part in parts:
        if part.device.type != "cuda":
            yield part.cpu().numpy()
            continue
        pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
        pinned.copy_(part, non_blocking=True)
        end = torch.cuda.Event()
        end.record(torch.cuda.current_stream(part.device))
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = pinned, end
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(pinned: Tensor, end: torch.cuda.Event) -> NDArray[np.generic]:
    """The values, once they are there, in memory that is not pinned."""
    end.synchronize()
    array: NDArray[np.generic] = pinned.numpy().copy()
    return array


def _on_stream(
    items: Iterable[Item], device: torch.device, move: Callable[[Item, Move], Item]
) -> Generator[Item]:
    stream = torch.cuda.Stream(device)
    waiting: tuple[Item, list[Tensor], torch.cuda.Event] | None = None
    done: torch.cuda.Event | None = None  # the work of the item before
    for item in items:
        tensors, end = list[Tensor](), torch.cuda.Event()

        def copy(tensor: Tensor, copied: list[Tensor] = tensors) -> Tensor:
            if tensor.device.type == "cuda":
                return tensor
            with torch.cuda.stream(stream):
                copied.append(to_device(tensor, device))
            return copied[-1]

        moved = move(item, copy)
        end.record(stream)
        if waiting is not None:
            yield _usable(*waiting, torch.cuda.current_stream(device))
            # Until the GPU has done all but the work of the item just consumed: else the consumer
            # could start hundreds of steps ahead of it, each with the memory of its copies.
            before, done = done, torch.cuda.Event(blocking=True)
            done.record(torch.cuda.current_stream(device))
            if before is not None:
                before.synchronize()
        waiting = moved, tensors, end
    if waiting is not None:
        yield _usable(*waiting, torch.cuda.current_stream(device))


def _usable(
    item: Item, copied: list[Tensor], end: torch.cuda.Event, consumer: torch.cuda.Stream
) -> Item:
    """The item, once its copies are ordered before the work of the consumer's stream."""
    # Of this item alone: waiting for the whole stream would wait for the next item's copies.
    consumer.wait_event(end)
    for tensor in copied:
        # The memory belongs to the stream of copies, which would reuse it for the next item while
        # the consumer's kernels still read it.
        tensor.record_stream(consumer)
    return item
