"""The program inside the process of the tests: torch is imported once, not for every command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from vlcpctl import cli
from vlcpctl.testing.tiny_stream import make_stream

TINY = ("--method", "ctp", "--preset", "tiny", "--batch-size", "4", "--epochs", "1", "-q")
MICRO = ("--model", "micro")
QUEUE = ("--set", "ctp.keep_queue=true", "--negatives", "all")


@dataclass(frozen=True)
class ProgramResult:
    """How a command ended, and what it printed where."""

    code: int
    out: str
    err: str


def run_program(capfd: pytest.CaptureFixture[str], *words: object) -> ProgramResult:
    """What `vlcpctl WORDS` does, in this process."""
    arguments = sys.argv
    capfd.readouterr()
    sys.argv = ["vlcpctl", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = arguments
    return ProgramResult(int(stop.value.code or 0), *capfd.readouterr())


def check_refused(result: ProgramResult, command: str, code: int, *fragments: object) -> None:
    """One line about this command on stderr, nothing on stdout, and this code."""
    assert (result.code, result.out) == (code, ""), result.err
    (line,) = result.err.splitlines()
    assert line.startswith(f"vlcpctl {command}: ")
    for words in fragments:
        assert str(words) in line


def make_inputs(root: Path) -> Path:
    """A stream, a buffer of its first task, and checkpoints of it with and without a queue."""
    from support.commands import buffer, train_step

    make_stream(root / "stream", 3, 12)
    first = root / "stream" / "00-part-0"
    buffer(first, root / "buffer", policy="ring", size="6", quiet=True)
    how = {"preset": "tiny", "model": "micro", "batch_size": 4, "epochs": 1, "quiet": True}
    train_step([first], root / "plain", "seqf", **how)  # type: ignore[arg-type]
    kept = {"set": [QUEUE[1]], "negatives": "all"}
    train_step([first], root / "queued", "ctp", **kept, **how)  # type: ignore[arg-type]
    return root
