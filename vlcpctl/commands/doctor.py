"""`vlcpctl doctor`: report what this machine can do, by trying it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from shlex import quote

from vlcpctl.commands.shared import Json
from vlcpctl.core import console
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import has_tf32, worker_count

LITTLE_DISK = 5 * 2**30  # a few checkpoints of a base model


class Doctor(Json):
    """Show what this machine can do.

    Exits with code 1 if something that vlcpctl requires is missing.

    Examples:
      vlcpctl doctor
      vlcpctl doctor --json | jq '.checks[] | select(.status != "ok")'
    """

    def execute(self) -> None:
        checks = []
        for name, look in CHECKS.items():
            try:
                status, detail = look()
            # What importing a wheel raises if it does not fit the others, and a full disk.
            except (ImportError, OSError, RuntimeError, AttributeError) as error:
                status, detail = "fail", f"{type(error).__name__}: {error}"
            checks.append({"name": name, "status": status, "detail": detail})
            if not self.json:
                console.emit(f"{status:5} {name:9} {detail}")
        if self.json:
            console.emit(json.dumps({"schema": "vlcpctl.doctor/1", "checks": checks}))
        failed = [check["name"] for check in checks if check["status"] == "fail"]
        if failed:
            raise VlcpError(f"vlcpctl cannot work here: {', '.join(failed)} failed")


def _torch() -> tuple[str, str]:
    """torch, and whether Python has compiled it for good, as it cannot where it may not write."""
    torch = import_module("torch")
    found = f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    file = Path(torch.__file__ or "")
    if Path(cache_from_source(file)).is_file():
        return "ok", found
    place = quote(str(file.parents[1]))
    return "warn", (
        f"{found}; every command compiles it again: unset PYTHONDONTWRITEBYTECODE, or run once: "
        f"python -m compileall -q {place}"
    )


def _cuda() -> tuple[str, str]:
    """The GPUs; --precision auto and --tf32 depend on what the first one computes in."""
    torch = import_module("torch")
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    if devices:
        names = [f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in devices]
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        arithmetic = f"{'bf16' if bf16 else 'no bf16'}, {'TF32' if has_tf32() else 'no TF32'}"
        return "ok", f"{', '.join(names)}, CUDA {torch.version.cuda}; {arithmetic}"
    if shutil.which("nvidia-smi"):
        return "warn", "nvidia-smi is installed, but torch finds no CUDA device: CPU only"
    return "ok", "no CUDA device: everything runs on the CPU"


def _open_clip() -> tuple[str, str]:
    import_module("torchvision")
    library = import_module("open_clip")
    tokens = library.get_tokenizer("ViT-B-32")(["a cat"])  # without a network
    return (
        "ok",
        f"{library.__version__}, {len(library.list_models())} models, {tokens.shape[1]} tokens",
    )


def _faiss() -> tuple[str, str]:
    try:
        faiss = import_module("faiss")
    except ModuleNotFoundError:
        return "ok", "not installed: evaluations have the same ranks without it"
    return "ok", f"{faiss.__version__}, {faiss.get_compile_options().strip()}"


def _machine() -> tuple[str, str]:
    python = f"Python {platform.python_version()} on {platform.platform()}"
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    workers = worker_count(None, "auto")
    return "ok", f"{python}, {cores} cores, {memory:.0f} GiB; --workers auto {workers}"


def _disk() -> tuple[str, str]:
    with tempfile.TemporaryFile() as file:  # TMPDIR must be writable
        file.write(b"x")
    free = shutil.disk_usage(Path.cwd()).free
    return "ok" if free > LITTLE_DISK else "warn", f"{free / 2**30:.0f} GiB free in {Path.cwd()}"


CHECKS: dict[str, Callable[[], tuple[str, str]]] = {
    one.__name__.removeprefix("_"): one
    for one in (_machine, _torch, _cuda, _open_clip, _faiss, _disk)
}
