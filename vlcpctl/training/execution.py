"""How a run is executed: processes, and options that only change the last bits of its results.

Torch-free.
"""

from __future__ import annotations

import os
import shutil

from vlcpctl.core.errors import UsageError
from vlcpctl.core.machine import has_tf32, in_words, is_gpu, own_cores
from vlcpctl.training.request import TrainRequest

BENCHMARK = "benchmark"  # of --cudnn
_OPTIONS = {
    "compile": "compiled",
    "tf32": "TF32",
    "grad_checkpointing": "gradient checkpointing",
    "local_loss": "local loss",
}


def check_processes(request: TrainRequest) -> None:
    """Raise UsageError if the batch, or the processes among machines, cannot be split evenly."""
    size, nproc, nodes = request.settings.batch_size, request.nproc, request.nodes
    if size % nproc:
        use = f"--batch-size {size - size % nproc}" if size > nproc else f"at most {size} processes"
        raise UsageError(f"--batch-size {size} is not divisible by {nproc} processes; use {use}")
    if request.local_loss and nproc == 1:
        raise UsageError(
            "--local-loss has no effect with one process: all pairs are its own; use --nproc"
        )
    if nproc % nodes:
        raise UsageError(f"--nproc {nproc} is not divisible by --nodes {nodes}")
    if nodes > 1 and not request.rendezvous:
        raise UsageError(f"--nodes {nodes} needs --rendezvous HOST:PORT, the same on every machine")
    if nodes == 1 and request.rendezvous:
        raise UsageError(
            f"--rendezvous {request.rendezvous} has no effect without --nodes: "
            "it is the address at which several machines connect"
        )


def check_execution(request: TrainRequest) -> None:
    """Raise UsageError for a device that is not there, and for options that the device lacks.

    Imports torch only for a device that is named, and on a GPU.
    """
    if request.device not in {"auto", "cpu"}:
        from vlcpctl.core.devices import torch_device

        torch_device(request.device)
    on_gpu = is_gpu(request.device)
    if request.tf32 and not on_gpu:
        raise UsageError("--tf32 has no effect: only GPUs have TF32, and the device is a CPU")
    if request.tf32 and not has_tf32():
        raise UsageError("--tf32 has no effect: this GPU is older than TF32 (NVIDIA Ampere)")
    if request.cudnn == BENCHMARK and not on_gpu:
        raise UsageError("--cudnn has no effect: only GPUs use cuDNN, and the device is a CPU")
    if request.compile:
        require_compiler(on_gpu=on_gpu)


def require_compiler(*, on_gpu: bool) -> None:
    """Raise UsageError if torch would not find a compiler, which it reports only after minutes."""
    # As torch's inductor looks for one for a CPU, and triton for a GPU.
    variable, usual = ("CC", ("gcc", "clang")) if on_gpu else ("CXX", ("g++",))
    names = (os.environ[variable],) if os.environ.get(variable) else usual
    if not any(shutil.which(name) for name in names):
        raise UsageError(
            f"--compile needs a C compiler, but {' and '.join(names)} cannot be found; install one "
            f"or set {variable}, or leave out --compile"
        )


def numeric_options(request: TrainRequest) -> dict[str, bool | str]:
    """The options that decide the last bits and are set, for the identity of the run."""
    found: dict[str, bool | str] = {name: True for name in _OPTIONS if getattr(request, name)}
    return found | ({"cudnn": BENCHMARK} if request.cudnn == BENCHMARK else {})


def execution_line(request: TrainRequest) -> str:
    """The device, its cores, the workers, the precision and the options, for the plan."""
    names = [words for name, words in _OPTIONS.items() if getattr(request, name)]
    where = in_words(request.workers, request.device)
    names += ["cudnn benchmark"] if request.cudnn == BENCHMARK else []
    cores = own_cores()
    if request.threads < cores and request.nproc == 1 and not is_gpu(request.device):
        names.append(f"{request.threads} of {cores} cores; --threads auto")
    return ", ".join((where, request.settings.precision, *names))
