"""Environment variables of options: their names, and a warning for those that set nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vlcpctl.commands import COMMANDS
from vlcpctl.core import console
from vlcpctl.core.errors import nearest
from vlcpctl.core.printable import printable

PROGRAM = "VLCPCTL_"
OTHERS = ("VLCPCTL_DEBUG",)  # variables that belong to no option
_warned: set[str] = set()  # lines of `batch` are forked, and inherit it


def prefix_of(command: str) -> str:
    """The start of the names of a command's variables.

    >>> prefix_of("train-step")
    'VLCPCTL_TRAIN_STEP'
    """
    return PROGRAM + command.replace("-", "_").upper()


def warn_of_unknown(prefix: str, known: Sequence[str]) -> None:
    """Warn of every VLCPCTL_ variable that sets nothing, naming the nearest one that exists.

    `known` are the variables of the command that runs, `prefix` their common start. Variables of
    other commands are checked when those run.
    """
    prefixes = [prefix_of(command) for command in COMMANDS]
    names = [name for name in os.environ if name.startswith(PROGRAM) and os.environ[name]]
    for name in sorted(names):
        if name in {*known, *OTHERS} or name in _warned:
            continue
        # VLCPCTL_CHECK_X could belong to `check` or to a longer name: the longest one counts.
        owner = max((one for one in prefixes if name.startswith(f"{one}_")), key=len, default=None)
        if owner not in {None, prefix}:
            continue
        _warned.add(name)
        near = nearest(name, [*known, *OTHERS], cutoff=0.75)
        guess = f"; did you mean {near}?" if near else ""
        console.warn(f"the environment variable {printable(name)} has no effect{guess}")
