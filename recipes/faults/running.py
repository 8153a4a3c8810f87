"""Runs a case: in a fork of a process that has imported torch, or as a program of its own."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from case import Case
from world import copied

MOST_SECONDS = 60
MOST_BYTES = 700_000_000  # of memory, above what the idle program has
_UNSAFE = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_TRACES = (b"Traceback (most recent", b"Exception ignored", b"Fatal Python error")


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    code: int
    stderr: str
    seconds: float
    memory: int  # bytes above the idle program; 0 if not measured
    faults: tuple[str, ...]  # what is wrong with the end; empty if all is well

    @property
    def line(self) -> str:
        """The line that explains the end: the error line, or the last warning."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        chosen = [line for line in lines if line.startswith(("vlcpctl ", "vlcpctl:", "warning:"))]
        errors = [line for line in chosen if line.startswith("vlcpctl")]
        return (errors or chosen or lines or [""])[-1]


def run_case(case: Case, world: Path, program: list[str]) -> Outcome:
    """Run a case in a fresh copy of the world; the copy is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="fault-"))
    try:
        place = copied(world, directory / "w")
        try:
            if case.prepare is not None:
                case.prepare(place)
        except Exception as error:  # noqa: BLE001 - one case must not end the table
            return Outcome(-1, "", 0, 0, (f"the fault cannot be made: {error!r}",))
        before = _listing(place)
        started = time.monotonic()
        if case.bash:
            code, out, err, memory = _run_bash(case, place, program)
        else:
            code, out, err, memory = _run_forked(case, place)
        seconds = time.monotonic() - started
        faults = tuple(_faults(case, place, before, (code, out, err, memory)))
        text = err.decode("utf-8", "backslashreplace").replace(str(place), ".")
        return Outcome(code, text, seconds, memory, faults)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _faults(case: Case, place: Path, before: dict[str, object], end: tuple) -> list[str]:
    code, out, err, memory = end
    found = []
    if code not in case.codes:
        found.append(f"exit {code}, not {' or '.join(map(str, case.codes))}")
    if code == -signal.SIGKILL and -9 not in case.codes:
        found.append(f"killed after {MOST_SECONDS} s")
    found += [mark.decode() for mark in _TRACES if mark in err]
    if _UNSAFE.search(err) or _UNSAFE.search(out):
        found.append("control characters on the terminal")
    if memory > MOST_BYTES:
        found.append(f"{memory / 1e6:.0f} MB of memory")
    if code > 0 and not case.bash and not _one_error_line(err):
        found.append("not one error line")
    if case.says and case.says not in err.decode("utf-8", "backslashreplace"):
        found.append(f"does not say {case.says!r}")
    return found + _changes(case, place, before, code)


def _one_error_line(err: bytes) -> bool:
    lines = [line for line in err.splitlines() if line.startswith((b"vlcpctl ", b"vlcpctl:"))]
    return len(lines) == 1 and err.rstrip().splitlines()[-1] == lines[0]


def _changes(case: Case, place: Path, before: dict[str, object], code: int) -> list[str]:
    """What a command did to files that are not its own."""
    after = _listing(place)
    own = (case.out, f".{case.out}.vlcpctl")
    foreign = [
        name
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name) and name.split("/")[0] not in own
    ]
    found = [f"changed {', '.join(foreign[:3])}"] if foreign else []
    if case.command and code != 75:
        staging = [name for name in after if name.startswith(own[1]) and "writing" in name]
        found += [f"left {staging[0]}"] if staging else []
    exists = os.path.lexists(place / case.out)
    was = any(name.split("/")[0] == case.out for name in before)
    wanted = code == 0 if case.writes is None else case.writes
    if not was and exists and not wanted:
        found.append("left an output")
    return found


def _listing(place: Path) -> dict[str, object]:
    """Every path below a directory with its size and mtime; directories without."""
    found: dict[str, object] = {}
    for above, directories, files in os.walk(place):
        inside = Path(above).relative_to(place)
        found |= {str(inside / name): "directory" for name in directories}
        for name in files:
            status = (Path(above) / name).lstat()
            found[str(inside / name)] = (status.st_size, status.st_mtime_ns)
    return found


def _run_bash(case: Case, place: Path, program: list[str]) -> tuple[int, bytes, bytes, int]:
    wrapper = place.parent / "vlcpctl"  # one word, wherever the program is
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    wrapper.chmod(0o755)
    environment = {**os.environ, **case.environment, "vlcpctl": str(wrapper)}
    process = subprocess.Popen(
        ["bash", "-c", case.bash],
        cwd=place,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(case.stdin, timeout=2 * MOST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return process.returncode, out, err, 0


def _run_forked(case: Case, place: Path) -> tuple[int, bytes, bytes, int]:
    """The program in a fork of this process, with files for its three streams."""
    streams = [place.parent / name for name in ("in", "out", "err")]
    for path, data in zip(streams, (case.stdin, b"", b""), strict=True):
        path.write_bytes(data)
    pid = os.fork()
    if pid == 0:
        _become_program(case, place, streams)
    killed = _kill_later(pid)
    _, status, usage = os.wait4(pid, 0)
    killed.terminate()
    killed.wait()
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = max(0, usage.ru_maxrss - idle) * 1024
    out, err = (path.read_bytes() for path in streams[1:])
    return os.waitstatus_to_exitcode(status), out, err, memory


def _kill_later(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", "-c", f"sleep {MOST_SECONDS}; kill -9 {pid}"])


def _become_program(case: Case, place: Path, streams: list[Path]) -> None:
    """Run the command line in this forked process, and end it."""
    try:
        os.setsid()
        os.chdir(place)
        os.environ.update(case.environment)
        for number, path in enumerate(streams):
            descriptor = os.open(path, os.O_RDWR)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.argv = ["vlcpctl", *case.command.split()]
        from vlcpctl.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except KeyboardInterrupt:
        os._exit(130)
    except BaseException:  # noqa: BLE001 - it is printed, and the parent goes on
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
