"""Commands with --nproc under a launcher: rank 0 runs the command, the others compute for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from vlcpctl.commands import options
from vlcpctl.distributed.ranks import process_ranks, processes


def with_ranks(run: Callable[..., None]) -> Callable[..., None]:
    """The command, which a launcher such as torchrun can start in several processes."""
    parameters = inspect.signature(run).parameters
    if "nproc" not in parameters or "nodes" in parameters:  # all ranks of train-step run it
        return run

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        ranks = process_ranks()
        if ranks is None or ranks.size == 1:
            run(**arguments)
            return
        processes(arguments["nproc"])  # refused before the processes wait for each other
        options.start(quiet=arguments["quiet"], threads=arguments["threads"])
        from vlcpctl.distributed.pool_ranks import run_as_rank

        run_as_rank(ranks, arguments["device"], functools.partial(run, **arguments))

    return command
