"""`vlcpctl batch`: many command lines, each a child forked from one process that is warm."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.commands import COMMANDS, options
from vlcpctl.core import console
from vlcpctl.core.children import Children
from vlcpctl.core.command_lines import CommandLine, parse
from vlcpctl.core.errors import BadInput, UsageError, VlcpError, unknown_name

# The commands whose imports take seconds; with the first optimizer, training's take three more.
TRAINS, EVALUATE = "train-step", frozenset({"eval-retrieval", "eval-zeroshot", "invert-texts"})

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Lines that may run at once.")]


class LineFailed(VlcpError):
    """A line ended with a code other than 0, which becomes the code of the whole."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def run(
    file: Annotated[Path, typer.Argument(help="Command lines; - is stdin.")] = Path("-"),
    jobs: Jobs = 1,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Run many command lines in one warm process.

    One vlcpctl command per line, quoted as for a shell; comments start with #, and a line with a
    backslash at its end goes on. With --jobs, a line starts when what it reads is there: one that
    names the --out of an earlier line waits for that line. A line 'wait' holds back all that
    follows until all before it has ended. After a line fails no other starts, and its code is the
    code of the whole.

    printf '%s\n' 'check stream/00-flags' 'check stream/01-objects' | vlcpctl batch --jobs 2

    vlcpctl batch recipe.txt --dry-run
    """
    options.start(quiet=quiet)
    lines = parse(_read(file))
    _check(lines)
    if dry_run:
        for line in lines:
            console.emit(line)
        return
    names = {line.words[0] for line in lines}
    if sys.platform == "linux" and names & {TRAINS, *EVALUATE}:
        from vlcpctl.models.imports import preload

        preload(trains=TRAINS in names)
    console.release_stdout()  # the children write to it; each claims it for itself
    children = Children(lines, jobs)
    children.run()
    _judge(children)


def _read(file: Path) -> str:
    if str(file) != "-":
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    if sys.stdin.isatty():
        raise UsageError("no command lines: give a file, or pipe them in")
    return sys.stdin.read()


def _check(lines: Sequence[CommandLine]) -> None:
    """Refuse a wrong line before the first one runs."""
    for line in lines:
        name = line.words[0]
        if name == "batch":
            raise UsageError(f"line {line.number}: batch cannot run batch; write its lines here")
        if name not in COMMANDS and not name.startswith("-") and not line.is_barrier:
            raise UsageError(f"line {line.number}: {unknown_name('command', name, COMMANDS)}")


def _judge(children: Children) -> None:
    left = sum(not line.is_barrier for line in children.waiting)
    rest = f" ({left} not started)" if left else ""
    if children.failed:
        line, code = children.failed
        raise LineFailed(f"line {line.number} ended with code {code}: {line}{rest}", code)
    if children.signal:
        raise LineFailed(f"stopped by signal {children.signal}{rest}", 128 + children.signal)
