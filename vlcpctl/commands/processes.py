"""A command among other processes: locks of its outputs, --wait for them, ranks of a launcher."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vlcpctl.commands import options
from vlcpctl.commands.paths import OUTPUTS, STORED

_WAIT = inspect.Parameter(
    "wait", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options.Wait
)
_CACHE = inspect.Parameter(
    "cache", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options.Cache
)


def with_cache(name: str, run: Callable[..., None]) -> Callable[..., None]:
    """The command with --cache, if its inputs may be in an object store.

    `paths.checked_paths` takes its value.
    """
    if name not in STORED or name == "update":  # which has the option itself, to record it
        return run

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        run(**arguments)

    parameters = inspect.signature(run, eval_str=True).parameters
    command.__dict__["__signature__"] = inspect.Signature([*parameters.values(), _CACHE])
    command.__annotations__ = {**run.__annotations__, "cache": options.Cache}
    return command


def with_ranks(run: Callable[..., None]) -> Callable[..., None]:
    """The command, which a launcher such as torchrun can start in several processes.

    Rank 0 runs it, and the others compute for it.
    """
    parameters = inspect.signature(run).parameters
    if "nproc" not in parameters or "nodes" in parameters:  # all ranks of train-step run it
        return run

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        from vlcpctl.distributed.ranks import process_ranks, processes

        ranks = process_ranks()
        if ranks is None or ranks.size == 1:
            run(**arguments)
            return
        processes(arguments["nproc"])  # refused before the processes wait for each other
        options.start(quiet=arguments["quiet"], threads=arguments["threads"])
        from vlcpctl.distributed.pool_ranks import run_as_rank

        run_as_rank(ranks, arguments["device"], functools.partial(run, **arguments))

    return command


def with_locks(run: Callable[..., None]) -> Callable[..., None]:
    """The command with --wait, and its outputs locked before it runs; one without is unchanged."""
    parameters = inspect.signature(run, eval_str=True).parameters
    if not OUTPUTS & parameters.keys():
        return run

    @functools.wraps(run)
    def command(*, wait: float | None = None, **arguments: Any) -> None:
        with _locked_outputs(arguments, wait):
            run(**arguments)

    command.__dict__["__signature__"] = inspect.Signature(list(_with_wait(parameters)))
    command.__annotations__ = {"wait": options.Wait, **run.__annotations__}
    return command


def _with_wait(parameters: Mapping[str, inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """The parameters, with --wait after --force."""
    for name, parameter in parameters.items():
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        if name == "force":
            yield _WAIT
    if "force" not in parameters:
        yield _WAIT


@contextmanager
def _locked_outputs(arguments: Mapping[str, Any], wait: float | None) -> Iterator[None]:
    """Hold the lock of every output within the block, waiting as given by --wait.

    Raises OutputExists if another process writes one of them.
    """
    from vlcpctl.core import console
    from vlcpctl.files.locks import set_patience
    from vlcpctl.files.outputs import Output, naming_output

    set_patience(wait or 0.0)
    console.set_quiet(bool(arguments.get("quiet")))  # while waiting, before the command starts
    with ExitStack() as stack:
        for out in _to_lock(arguments):
            with naming_output(out):
                stack.enter_context(Output(out).locked())
        yield


def _to_lock(arguments: Mapping[str, Any]) -> list[Path]:
    """The outputs that this process alone writes, in an order that is the same for all commands.

    Of several processes that write one output together, each decides when to lock what.
    """
    from vlcpctl.files.outputs import is_pipe_or_device

    only_shows = arguments.get("dry_run") or arguments.get("print_config")
    # Without --shard-index, all but distill join the shards that others have made.
    is_shard = arguments.get("shard_index") is not None
    shares_work = is_shard and (arguments.get("num_shards") or 1) > 1
    # All processes of train-step run the command; those of others only compute for the first one.
    together = "nodes" in arguments and ((arguments["nproc"] or 1) > 1 or "RANK" in os.environ)
    if only_shows or shares_work or together:
        return []
    outputs = {arguments[name] for name in OUTPUTS & arguments.keys()} - {None, Path("-")}
    embeddings, checkpoints = arguments.get("save_embeddings"), arguments.get("checkpoint")
    if embeddings and checkpoints and len(set(checkpoints)) > 1:  # one directory for each
        outputs |= {embeddings / path.name for path in checkpoints}
    return sorted(out for out in outputs if not is_pipe_or_device(out))
