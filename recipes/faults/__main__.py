"""Tries every case and prints those that end badly; run it with `bash recipes/faults.sh`.

A case runs in a fresh copy of a small world (a stream, runs, a buffer, rows, half-written runs). It
is right if its exit code is one that the case allows, stderr ends in one line that explains it, no
traceback and no control character is printed, no file but its own output is changed, nothing
half-written is left at the output, and it takes less time and memory than `running` allows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from case import Case
from cases import CASES
from running import Outcome, run_case
from world import make_world


def main() -> int:
    """Run the cases whose names contain a word of the command line, or all if there is none."""
    given = _given()
    words = given.words
    numbers = [n for n, c in enumerate(CASES) if not words or any(w in c.name for w in words)]
    chosen = [CASES[number] for number in numbers]
    if given.list:
        print("\n".join(case.name for case in chosen))
        return 0
    program = [sys.executable, "-m", "vlcpctl"]
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        world = given.world or Path(scratch) / "world"
        if not world.exists():
            make_world(world, program)
        _warm()
        with ProcessPoolExecutor(given.jobs, get_context("fork")) as pool:
            tried = [pool.submit(_run, n, world, program) for n in numbers]
            ends = []
            for case, future in zip(chosen, tried, strict=True):
                ends.append(future.result())
                _report(case, ends[-1])
    wrong = sum(bool(end.faults) for end in ends)
    print(f"{len(ends)} cases, {wrong} wrong")
    print(f"slowest {max(end.seconds for end in ends):.1f} s, ", end="")
    print(f"most memory {max(end.memory for end in ends) / 1e6:.0f} MB")
    return int(bool(wrong))


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run only the cases whose name contains a word")
    parser.add_argument("--world", type=Path, help="a world that an earlier run made here")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at once")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    return parser.parse_args()


def _run(number: int, world: Path, program: list[str]) -> Outcome:
    # A case holds functions, which cannot be sent.
    return run_case(CASES[number], world, program)


def _warm() -> None:
    """Import what every command needs, before the forks."""
    for name in ("open_clip", "torch", "vlcpctl.cli"):
        import_module(name)
    from vlcpctl.commands import COMMANDS, command_class

    for name in COMMANDS:
        command_class(name)
    os.environ["OMP_NUM_THREADS"] = "1"


def _report(case: Case, end: Outcome) -> None:
    if end.faults:
        print(f"WRONG {case.name}\n   {'; '.join(end.faults)}\n   {end.code}: {end.line[:300]}")


if __name__ == "__main__":
    sys.exit(main())
