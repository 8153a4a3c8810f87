"""Tries every case and writes the table; run it with `bash recipes/faults.sh`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from case import Case
from cases import CASES
from running import MOST_BYTES, MOST_SECONDS, Outcome, run_case
from slips import SLIPS
from world import make_world

_HEAD = """\
# Faults and hostile inputs: what vlcpctl does

{count} cases, each in a fresh copy of a small world (a stream, runs, a buffer, rows, half-written
runs). `bash recipes/faults.sh` makes this table. A case is right if its exit code is one that the
table allows, stderr ends in one line that explains it, no traceback and no control character is
printed, no file but its own output is changed, nothing half-written is left at the output, and it
takes less than {seconds} s and {memory} MB above the idle program.

{verdict}
"""

_SLIPS_HEAD = """\
# Slips of a first day: what vlcpctl answers

{count} command lines with a typing error, a name from another program, a wrong path, order or
unit, in the small world of the [faults](faults.md). `bash recipes/faults.sh --slips` makes this
table. An answer is right if it is one line with one of the allowed exit codes, names what was
meant, and nothing is changed.

{verdict}
"""


def main() -> int:
    """Run the cases whose names contain a word of the command line, or all if there is none."""
    given = _given()
    words = given.words
    every = _cases(given.slips)
    numbers = [n for n, c in enumerate(every) if not words or any(w in c.name for w in words)]
    chosen = [every[number] for number in numbers]
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
            tried = [pool.submit(_run, given.slips, n, world, program) for n in numbers]
            ends = []
            for case, future in zip(chosen, tried, strict=True):
                ends.append(future.result())
                _report(case, ends[-1])
    if given.out:
        head = _SLIPS_HEAD if given.slips else _HEAD
        given.out.write_text(_table(head, chosen, ends), encoding="utf-8")
    wrong = sum(bool(end.faults) for end in ends)
    print(f"{len(ends)} cases, {wrong} wrong")
    print(f"slowest {max(end.seconds for end in ends):.1f} s, ", end="")
    print(f"most memory {max(end.memory for end in ends) / 1e6:.0f} MB")
    return int(bool(wrong))


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="run only the cases whose name contains a word")
    parser.add_argument("-o", "--out", type=Path, help="write the table to this file")
    parser.add_argument("--world", type=Path, help="a world that an earlier run made here")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at once")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    parser.add_argument("--slips", action="store_true", help="slips of a first day instead")
    return parser.parse_args()


def _cases(slips: bool) -> list[Case]:
    return SLIPS if slips else CASES


def _run(slips: bool, number: int, world: Path, program: list[str]) -> Outcome:
    # A case holds functions, which cannot be sent.
    return run_case(_cases(slips)[number], world, program)


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


def _table(head: str, cases: list[Case], ends: list[Outcome]) -> str:
    wrong = sum(bool(end.faults) for end in ends)
    verdict = f"**{len(ends) - wrong} of {len(ends)} are right.**"
    text = head.format(
        count=len(cases), seconds=MOST_SECONDS, memory=MOST_BYTES // 10**6, verdict=verdict
    )
    groups = Counter(case.group for case in cases)
    for group in groups:
        text += f"\n## {group}\n\n| fault | command | exit | what it prints |\n|---|---|---|---|\n"
        for case, end in zip(cases, ends, strict=True):
            if case.group == group:
                text += _row(case, end)
    return text


def _row(case: Case, end: Outcome) -> str:
    ran = case.command or case.bash
    shown = ran if len(ran) < 90 else f"{ran[:87]}..."
    line = end.line if len(end.line) < 200 else f"{end.line[:197]}..."
    mark = f" **WRONG: {'; '.join(end.faults)}**" if end.faults else ""
    cells = [case.fault, f"`{_cell(shown)}`", str(end.code), _cell(line) + mark]
    return f"| {' | '.join(cells)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


if __name__ == "__main__":
    sys.exit(main())
