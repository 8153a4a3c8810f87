"""The entry point of the process: sets up signals and streams before the imports, and exits.

An interrupt during imports or while the interpreter shuts down would otherwise be printed as a
traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys


class _State:
    code = 1  # the exit code, as far as it is known


def main() -> None:
    """Run the command line of this process and exit; signals end it with 128 + their number."""
    _end_at_signals()
    _open_closed_streams()
    state, pid = _State(), os.getpid()
    # Registered first, it runs last: after everything else that runs at exit, and instead of the
    # teardown of modules.
    atexit.register(_leave, state, pid)
    from vlcpctl.cli import main as run
    from vlcpctl.core import machine

    machine.speed_up_torch()
    try:
        run()
        state.code = 0
    except SystemExit as stop:
        state.code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise


def _end_at_signals() -> None:
    # Nothing has been written yet. What is ignored, as by `nohup`, stays ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number: int, _frame: object) -> None:
    os._exit(128 + number)


def _open_closed_streams() -> None:
    """Open streams that were closed at the start (`>&-`) on /dev/null.

    Otherwise a file that is opened later gets the number of stdout, and results would go into it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            stream = os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _leave(state: _State, pid: int) -> None:
    if os.getpid() != pid:
        return  # a forked child, which ends in its own way
    if "coverage" in sys.modules:
        return  # it registered its own function before this one, to save what it measured
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            state.code = state.code or 128 + signal.SIGPIPE
        except (OSError, ValueError):
            state.code = state.code or 1
    os._exit(state.code)


if __name__ == "__main__":
    main()
