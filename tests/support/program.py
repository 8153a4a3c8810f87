"""The program inside the process of the tests: torch is imported once, not for every command."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

import pytest

from vlcpctl import cli


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed where."""

    code: int
    out: str
    err: str


def run_program(capfd: pytest.CaptureFixture[str], *words: object) -> Ended:
    """What `vlcpctl WORDS` does, in this process."""
    arguments, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    capfd.readouterr()
    sys.argv = ["vlcpctl", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = arguments
        signal.signal(signal.SIGTERM, handler)
    return Ended(int(stop.value.code or 0), *capfd.readouterr())
