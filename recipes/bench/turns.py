"""Contenders measured in turns, in CPU seconds beside wall seconds; imported by the other scripts.

What else a machine does hits all contenders of a round alike, so ratios are taken round by round.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

from vlcpctl.core.console import emit

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
Contender = Callable[[], object] | Sequence[str]  # a function of this process, or a command


@dataclass
class Seconds:
    """The CPU and wall seconds of a contender, one of each a round."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def in_turns(
    contenders: Mapping[str, Contender], *, rounds: int = 5, warm_up: int = 1
) -> dict[str, Seconds]:
    """Run each contender once a round, and return what each round took.

    A command runs in a process of its own, with one thread; its CPU seconds include its children's.
    Raises subprocess.CalledProcessError if one fails.
    """
    found = {name: Seconds() for name in contenders}
    for number in range(warm_up + rounds):
        for name, contender in contenders.items():
            cpu, wall = _seconds(contender)
            if number >= warm_up:
                found[name].cpu.append(cpu)
                found[name].wall.append(wall)
    return found


def _seconds(contender: Contender) -> tuple[float, float]:
    if callable(contender):
        cpu, wall = time.process_time(), time.perf_counter()
        contender()
        return time.process_time() - cpu, time.perf_counter() - wall
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(contender, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - wall


def ratios(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratio one / other of each round."""
    return [a / b for a, b in zip(one, other, strict=True)]


def show(found: Mapping[str, Seconds], rival: str, *, per: float = 1, unit: str = "s") -> None:
    """Print the median and minimum of each contender, and its ratio to the rival's.

    Seconds are divided by `per`, to give those of one of several steps, for example.
    """
    emit(machine())
    emit(f"{'':34}{'CPU ' + unit + ': median':>16}{'min':>10}{'wall: median':>14}{'min':>10}")
    for name, one in found.items():
        cells = [pick(seconds) / per for seconds in (one.cpu, one.wall) for pick in (median, min)]
        cpu, least_cpu, wall, least_wall = (f"{cell:.4g}" for cell in cells)
        emit(f"{name:34}{cpu:>16}{least_cpu:>10}{wall:>14}{least_wall:>10}")
    for name, one in found.items():
        if name != rival:
            of_cpu = median(ratios(one.cpu, found[rival].cpu))
            of_wall = median(ratios(one.wall, found[rival].wall))
            emit(f"{name} / {rival}: {of_cpu:.2f} in CPU time, {of_wall:.2f} in wall time")


def machine() -> str:
    """The processor, its cores, and the versions of Python and torch, in one line."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{name}, {os.cpu_count()} cores; Python {python}, torch {version('torch')}"
