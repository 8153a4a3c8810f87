"""`vlcpctl doctor`: report what this machine can do, by trying it."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from vlcpctl.commands.running import DEFAULT_THREADS
from vlcpctl.commands.shared import Json
from vlcpctl.core import console
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import has_tf32, is_gpu, worker_count
from vlcpctl.jobs.runner import CONTEXT

Status = Literal["ok", "warn", "fail"]
LITTLE_DISK = 5 * 2**30  # a few checkpoints of a base model
# What importing a wheel raises if it does not fit the others.
IMPORT_ERRORS = (ImportError, OSError, RuntimeError, AttributeError)


@dataclass(frozen=True)
class Check:
    """The result of one check; `fail` means that vlcpctl cannot work without it."""

    name: str
    status: Status
    detail: str


class Doctor(Json):
    """Show what this machine can do.

    Exits with code 1 if something that vlcpctl requires is missing.

    Examples:
      vlcpctl doctor
      vlcpctl doctor --json | jq '.checks[] | select(.status != "ok")'
    """

    def execute(self) -> None:
        checks = list(_checks())
        if self.json:
            rows = [dataclasses.asdict(check) for check in checks]
            console.emit(json.dumps({"schema": "vlcpctl.doctor/1", "checks": rows}))
        else:
            for check in checks:
                console.emit(f"{check.status:5} {check.name:12} {check.detail}")
        failed = [check.name for check in checks if check.status == "fail"]
        if failed:
            raise VlcpError(f"vlcpctl cannot work here: {', '.join(failed)} failed")


def _checks() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield _import_check(
        "torch",
        lambda torch: Check(
            "torch", "ok", f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
        ),
    )
    yield _import_check("bytecode", _bytecode, needs="torch")
    yield _import_check("cuda", _cuda, needs="torch")
    yield _import_check(
        "torchvision", lambda module: Check("torchvision", "ok", module.__version__)
    )
    yield _import_check(
        "open_clip",
        lambda module: Check(
            "open_clip", "ok", f"{module.__version__}, {len(module.list_models())} models"
        ),
    )
    yield _import_check("tokenizer", _tokenizer, needs="open_clip")
    yield _compiler()
    yield _faiss()
    yield _threads()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Check("memory", "ok", f"{total / 2**30:.0f} GiB")
    free = shutil.disk_usage(Path.cwd()).free
    status: Status = "ok" if free > LITTLE_DISK else "warn"
    yield Check("disk", status, f"{free / 2**30:.0f} GiB free in {Path.cwd()}")
    yield _temporary()
    method = CONTEXT.get_start_method()
    cost = "share imported modules" if method == "fork" else "import everything themselves"
    yield Check("batch", "ok", f"child processes start by {method} and {cost}")


def _import_check(name: str, check: Callable[[Any], Check], needs: str | None = None) -> Check:
    """The check that `check` makes of a module; a failed check if the import fails."""
    try:
        return check(importlib.import_module(needs or name))
    except IMPORT_ERRORS as error:
        return Check(name, "fail", f"{type(error).__name__}: {error}")


def _bytecode(torch: Any) -> Check:
    """Whether Python has compiled torch for good, as it cannot where it may not write."""
    if Path(cache_from_source(torch.__file__)).is_file():
        return Check("bytecode", "ok", "compiled modules are kept")
    installed = Path(torch.__file__).parents[1]
    return Check(
        "bytecode",
        "warn",
        "every command compiles torch again, which doubles the CPU time of its imports; unset "
        f"PYTHONDONTWRITEBYTECODE, or run once: python -m compileall -q {quote(str(installed))}",
    )


def _cuda(torch: Any) -> Check:
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    if devices:
        names = [f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in devices]
        return Check(
            "cuda", "ok", f"{', '.join(names)}, CUDA {torch.version.cuda}; {_arithmetic(torch)}"
        )
    if shutil.which("nvidia-smi"):
        return Check(
            "cuda", "warn", "nvidia-smi is installed, but torch finds no CUDA device: CPU only"
        )
    return Check("cuda", "ok", "no CUDA device: everything runs on the CPU")


def _arithmetic(torch: Any) -> str:
    """What the first GPU computes in: --precision auto and --tf32 depend on it."""
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return f"{'bf16' if bf16 else 'no bf16'}, {'TF32' if has_tf32() else 'no TF32'}"


def _compiler() -> Check:
    """Whether --compile would find a compiler."""
    from vlcpctl.training.execution import require_compiler

    try:
        require_compiler(on_gpu=is_gpu("auto"))
    except VlcpError as error:
        return Check("compile", "warn", str(error))
    return Check("compile", "ok", "a C compiler for train-step --compile is installed")


def _tokenizer(open_clip: Any) -> Check:
    tokens = open_clip.get_tokenizer("ViT-B-32")(["a cat"])
    return Check("tokenizer", "ok", f"works without a network, {tokens.shape[1]} tokens")


def _faiss() -> Check:
    wheels = [name for name in ("faiss-cpu", "faiss-gpu") if _installed(name)]
    if len(wheels) == 2:
        return Check(
            "faiss", "fail", "faiss-cpu and faiss-gpu overwrite each other; uninstall both"
        )
    if not wheels:
        return Check("faiss", "ok", "not installed: evaluations have the same ranks without it")
    return _import_check("faiss", _faiss_build)


def _faiss_build(faiss: Any) -> Check:
    build = faiss.get_compile_options().strip()
    on_gpu = "GPU" in build.split()
    where = f"{faiss.get_num_gpus()} GPUs" if on_gpu else "CPU build"
    return Check("faiss", "ok", f"{faiss.__version__}, {where} ({build})")


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _threads() -> Check:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    workers = worker_count(None, "auto")
    return Check(
        "threads",
        "ok",
        f"{usable} cores; arithmetic uses {DEFAULT_THREADS} by default, --workers auto {workers}",
    )


def _temporary() -> Check:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
    except OSError as error:
        return Check("temporary", "fail", f"cannot write to TMPDIR: {error.strerror}")
    return Check("temporary", "ok", f"{tempfile.gettempdir()} can be written")
