"""The number of processes that work together, and the place of this one. Torch-free."""

from __future__ import annotations

import os
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable


@dataclass(frozen=True)
class ProcessRanks:
    """The rank of a process among `size`; `local_rank` is its rank among those of its machine."""

    rank: int
    size: int
    local_rank: int


def process_ranks() -> ProcessRanks | None:
    """This process's ranks from a launcher's environment (torchrun); None without a launcher.

    Raises UsageError if a variable is not a number.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return ProcessRanks(*map(_number, ("RANK", "WORLD_SIZE", "LOCAL_RANK")))


def _number(variable: str) -> int:
    text = os.environ.get(variable, "0")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"the environment variable {variable} is '{printable(text):.80}', not a number; start "
            "vlcpctl with a launcher such as torchrun, or unset RANK and WORLD_SIZE"
        )
    return int(text)


def processes(nproc: int | None) -> int:
    """The number of processes: `nproc` (--nproc), or as many as a launcher has started.

    Raises UsageError if the two differ.
    """
    ranks = process_ranks()
    if ranks is None:
        return nproc or 1
    if nproc not in (None, ranks.size):
        raise UsageError(
            f"--nproc {nproc} differs from the {ranks.size} processes that a launcher has started "
            "(WORLD_SIZE); leave out --nproc, or start vlcpctl without the launcher"
        )
    return ranks.size
