"""A command in a process of its own: its results, its progress, its errors, its end by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import vlcpctl
from vlcpctl.core.errors import VlcpError, exit_codes, kinds


def output_of(command: str, words: Sequence[str], stdin: str = "") -> str:
    """What `vlcpctl COMMAND WORDS` prints to stdout; its stderr goes to sys.stderr, line by line.

    A failure is raised as the VlcpError of its exit code, with the command's message. Ctrl-C is
    passed on, and KeyboardInterrupt raised when the command has ended; again, it ends at once.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        given.write(stdin.encode())
        given.seek(0)
        with _started([command, *words], given, printed) as process:
            message = _followed(process, f"vlcpctl {command}: ")
        if process.returncode:
            raise _error(process.returncode, message)
        printed.seek(0)
        return printed.read().decode()


def _started(words: Sequence[str], given: IO[bytes], printed: IO[bytes]) -> subprocess.Popen[str]:
    # Without -P, a file beside a notebook, such as random.py, would be imported in place of
    # Python's module of this name. In a checkout, the package itself is beside the notebook.
    safe = [] if Path(vlcpctl.__file__).parents[1] == Path.cwd() else ["-P"]
    # In a terminal and in a notebook, Ctrl-C reaches all processes of the group, and a command ends
    # at once if a second signal follows. So this one gets only what is passed on. In a group of its
    # own it would go on when the kernel of a notebook is restarted.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, *safe, "-m", "vlcpctl", *words],
            stdin=given,
            stdout=printed,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _followed(process: subprocess.Popen[str], prefix: str) -> str:
    """Pass on the lines of stderr until the process has ended; the message of its error, if any.

    The message is the line with the prefix, which is not passed on, or else the last line. What is
    raised meanwhile ends the process; KeyboardInterrupt is raised again when it has ended.
    """
    message, last, interrupts = "", "", list[KeyboardInterrupt]()
    while True:
        try:
            for line in process.stderr or ():
                last = line
                if line.startswith(prefix):
                    message = line
                else:
                    _pass_on(line)
            process.wait()
            break
        except KeyboardInterrupt as error:
            interrupts.append(error)
            end = process.terminate if len(interrupts) < 3 else process.kill
            end()
        except BaseException:
            process.terminate()
            raise
    if interrupts:
        _pass_on(message)
        raise interrupts[0]
    return (message or last).removeprefix(prefix).strip()


def _pass_on(line: str) -> None:
    sys.stderr.write(line)  # which a notebook may have replaced
    sys.stderr.flush()


def _error(code: int, message: str) -> VlcpError:
    """The error of an exit code; without a message it says how the process ended."""
    if code < 0:
        message = f"the process was ended by {signal.Signals(-code).name}"
    elif code > 128:
        message = exit_codes().get(code, message)
    return {one.exit_code: one for one in kinds()}.get(code, VlcpError)(message)
