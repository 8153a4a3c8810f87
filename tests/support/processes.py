"""Processes that train together, forked from the warm one that runs the tests."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vlcpctl import cli
from vlcpctl.files import outputs

TIMEOUT_S = 100


def run_together(act: Callable[[int], None], count: int = 2) -> list[int]:
    """Let `count` processes act, each knowing its place as torchrun tells it; their exit codes."""
    importlib.import_module("vlcpctl.distributed.launch")  # once for all children
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": count, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    pids = [
        start_child(act, rank, **world, RANK=rank, LOCAL_RANK=rank)  # type: ignore[arg-type]
        for rank in range(count)
    ]
    return [exit_code_of(pid) for pid in pids]


def start_child(act: Callable[[int], None], rank: int = 0, **environment: object) -> int:
    """The id of a child that acts; one that hangs is killed."""
    pid = os.fork()
    if pid:
        return pid
    gc.freeze()  # a collection would copy what the child shares with its parent
    signal.alarm(TIMEOUT_S)
    os.environ.update({name: str(value) for name, value in environment.items()})
    code = 1
    try:
        act(rank)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - a child must not run the parent's tests
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def exit_code_of(pid: int) -> int:
    """The exit code of a child, once it has ended; negative for a signal."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def killed_before(change: int | str, act: Callable[[], object]) -> bool:
    """Act in a child that is killed before a change of names; False if it does not make that.

    It is the n-th, or the first that makes or removes a path with this text in it.
    """
    made = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*given: Any, **more: Any) -> Any:
            made[0] += 1
            if made[0] == change or (isinstance(change, str) and change in str(given[-1])):
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **more)

        return changed

    def child(_rank: int) -> None:
        for name in ("rename", "replace", "unlink", "rmdir"):
            setattr(os, name, counted(getattr(os, name)))
        outputs._exchange = counted(outputs._exchange)
        act()

    code = exit_code_of(start_child(child))
    assert code in {0, -signal.SIGKILL}
    return code != 0


def run_line(words: Sequence[object], log: Path) -> None:
    """In a child: be the program `vlcpctl WORDS`, and write to LOG.out and LOG.err."""
    for descriptor, ending in ((1, "out"), (2, "err")):
        file = os.open(f"{log}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["vlcpctl", *map(str, words)]
    cli.main()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
