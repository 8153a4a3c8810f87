"""Checks of the number of training processes. Torch-free."""

from __future__ import annotations

from vlcpctl.core.errors import UsageError
from vlcpctl.training.config.request import TrainRequest


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
