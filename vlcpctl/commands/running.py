"""A request among other processes: ranks of a launcher, locks of its outputs, threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vlcpctl.commands.paths import outputs_of
from vlcpctl.core import console
from vlcpctl.core.machine import AUTO_THREADS, threads_of
from vlcpctl.core.options import Command

DEFAULT_THREADS = 1
_OF_LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def start(request: Command) -> Command:
    """Set --quiet, and what libraries read of threads when they are imported.

    Returns the request with the number of its threads.
    """
    given: dict[str, Any] = vars(request)
    if given.get("threads") == AUTO_THREADS:
        here = (given.get("nproc") or 1) // (given.get("nodes") or 1)
        request = type(request).made_of(given | {"threads": threads_of(here)})
    threads = getattr(request, "threads", None)
    count = threads if isinstance(threads, int) else DEFAULT_THREADS  # that of update may be none
    console.set_quiet(bool(getattr(request, "quiet", False)))
    os.environ.update(dict.fromkeys(_OF_LIBRARIES, str(count)))
    # Threads that wait actively take the cores from each other on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if "torch" in sys.modules:  # batch imports torch before a command starts
        sys.modules["torch"].set_num_threads(count)
    return request


def run(request: Command) -> None:
    """Execute a request, which a launcher such as torchrun can start in several processes.

    Rank 0 executes it, and the others compute for it.
    """
    request = start(request)
    given: dict[str, Any] = vars(request)
    if "nproc" in given and "nodes" not in given:  # all ranks of train-step run the command
        from vlcpctl.distributed.ranks import process_ranks, processes

        ranks = process_ranks()
        if ranks is not None and ranks.size > 1:
            processes(given["nproc"])  # refused before the processes wait for each other
            from vlcpctl.distributed.peers import run_as_rank

            run_as_rank(ranks, given["device"], lambda: _locked(request))
            return
    _locked(request)


def _locked(request: Command) -> None:
    """Execute a request, with its outputs locked if it is the only one that writes them."""
    with _locked_outputs(request):
        request.execute()


@contextmanager
def _locked_outputs(request: Command) -> Iterator[None]:
    """Hold the lock of every output within the block, waiting as given by --wait.

    Raises OutputExists if another process writes one of them.
    """
    from vlcpctl.files.locks import set_patience
    from vlcpctl.files.outputs import Output, naming_output

    set_patience(getattr(request, "wait", None) or 0.0)
    with ExitStack() as stack:
        for out in _to_lock(request):
            with naming_output(out):
                stack.enter_context(Output(out).locked())
        yield


def _to_lock(request: Command) -> list[Path]:
    """The outputs that this process alone writes, in an order that is the same for all commands.

    Of several processes that write one output together, each decides when to lock what.
    """
    from vlcpctl.files.outputs import is_pipe_or_device

    given: dict[str, Any] = vars(request)
    only_shows = given.get("dry_run") or given.get("print_config")
    # Without --shard-index, all but distill join the shards that others have made.
    is_shard = given.get("shard_index") is not None
    shares_work = is_shard and (given.get("num_shards") or 1) > 1
    # All processes of train-step run the command; those of others only compute for the first one.
    together = "nodes" in given and ((given["nproc"] or 1) > 1 or "RANK" in os.environ)
    if only_shows or shares_work or together:
        return []
    outputs = set(outputs_of(request))
    embeddings, checkpoints = given.get("save_embeddings"), given.get("checkpoint")
    if embeddings and checkpoints and len(set(checkpoints)) > 1:  # one directory for each
        outputs |= {embeddings / path.name for path in checkpoints}
    return sorted(out for out in outputs if not is_pipe_or_device(out))
