"""`vlcpctl batch`: run many command lines, each in a child forked from one warm process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.commands.shared import Quiet
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, VlcpError, unknown_name
from vlcpctl.core.options import OnePath, argument, option, options_of, printing
from vlcpctl.core.words import counted
from vlcpctl.files.inputs import STDIN, lines_of
from vlcpctl.jobs.engines import ENGINES, sbatch_script, snakefile
from vlcpctl.jobs.runner import JobRunner
from vlcpctl.jobs.script import CommandLine, parse


class LineFailed(VlcpError):
    """A line failed; its exit code becomes the exit code of `batch`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class Batch(Quiet):
    r"""Run many command lines in one warm process.

    One vlcpctl command per line, quoted as in a shell. A # starts a comment, and a backslash at
    the end of a line continues it on the next one. * and ? stand for the paths that are there when
    the line starts.

    With --jobs, a line starts as soon as its inputs exist: a line that names the --out or --state
    of an earlier line waits for that line; shards of one output run side by side. A line 'wait'
    holds back all later lines until all earlier ones have ended. If a line fails, no further line
    starts, and its exit code is the exit code of batch. --quiet applies to every line.

    --dry-run prints the lines and runs the dry run of each. Lines whose inputs earlier lines make,
    or whose command has no --dry-run, are not checked, and counted.

    --to prints the same lines, with the same order, for Snakemake or Slurm. A comment such as
    '#: gpus=8 mem=64GB time=12h' says what a line needs, or, on a line of its own, what all later
    lines need: gpus, cpus and mem of each machine, time (min, h, d), nodes, partition and account.
    Lines get --wait, and a train-step a process per GPU.

    Examples:
      vlcpctl batch recipe.txt --dry-run
      vlcpctl batch recipe.txt --to snakemake > Snakefile
      vlcpctl batch recipe.txt --to sbatch > submit.sh && bash submit.sh
      printf '%s\n' 'check stream/00-flags' 'check stream/01-objects' |
          vlcpctl batch --jobs 2
    """

    file: OnePath = argument(
        "FILE", "File of command lines; - reads stdin", kw_only=False, default=Path("-")
    )
    jobs: int = option(
        "Lines to run at the same time; one with --nproc M runs M processes",
        "N",
        default=1,
        short="-j",
        within="[1, 1024]",
    )
    to: str | None = option(
        "Run nothing, and print the lines for another engine: a Snakefile, or a bash script "
        "that submits them as jobs of Slurm",
        "snakemake|sbatch",
        otherwise="run them here",
        choices=tuple(ENGINES),
    )
    dry_run: bool = printing("Check the inputs, print the plan and write nothing")

    def execute(self) -> None:
        file = str(self.file)
        name = "<stdin>" if file == STDIN else file
        lines = parse("".join(lines_of(file, name)), has_resources=self.to is not None)
        for line in lines:
            _refuse_unknown(line)
        if self.to is not None:
            self._export(lines, self.to)
        elif self.dry_run:
            self._dry_run(lines)
        else:
            if sys.platform == "linux" and any(map(loads_model, lines)):
                from vlcpctl.models.imports import preload

                preload()
            self._run(lines, lines)

    def _run(self, lines: Sequence[CommandLine], given: Sequence[CommandLine]) -> None:
        """Run lines. Raises LineFailed, which shows the first one that failed as it was given."""
        console.release_stdout()  # each child claims stdout for itself
        runner = JobRunner(
            [_with(one, "--quiet") for one in lines] if self.quiet else lines, self.jobs
        )
        runner.run()
        left = sum(not line.is_barrier for line in runner.waiting)
        rest = f" ({left} not started)" if left else ""
        if runner.failed:
            failed, code = runner.failed
            line = next(one for one in given if one.number == failed.number)
            raise LineFailed(f"line {line.number} ended with code {code}: {line}{rest}", code)
        if runner.signal:
            raise LineFailed(f"stopped by signal {runner.signal}{rest}", 128 + runner.signal)

    def _dry_run(self, lines: Sequence[CommandLine]) -> None:
        """Print the lines, and run the dry run of each whose inputs no earlier line makes."""
        checked: list[CommandLine] = []
        made: list[str | None] = []
        not_checked: Counter[str] = Counter()
        for line in lines:
            console.emit(line)
            if line.is_barrier:
                continue
            if not _has(line.words[0], "dry_run"):
                not_checked["whose command has no --dry-run"] += 1
            elif line.reads(made):
                not_checked["whose inputs earlier lines make"] += 1
            else:
                checked.append(_with(line, "--dry-run"))
            made.append(line.makes)
        self._run(checked, lines)
        for reason, count in not_checked.items():
            console.warn(f"not checked: {counted(count, 'line')} {reason}")

    def _export(self, lines: Sequence[CommandLine], to: str) -> None:
        """Print the lines for another engine. Raises UsageError if it cannot run them."""
        if self.jobs > 1:
            raise UsageError(f"--jobs has no effect with --to {to}: the engine starts the lines")
        if all(line.is_barrier for line in lines):
            raise UsageError(f"{self.file} has no lines to export")
        name = "batch" if str(self.file) == STDIN else str(self.file)
        make = snakefile if to == "snakemake" else sbatch_script
        for line in [*make(lines, name, partial(_has, option="wait"))]:  # whole, or not at all
            console.emit(line)


def _refuse_unknown(line: CommandLine) -> None:
    """Refuse a line that is not a command, before the first one runs."""
    name = line.words[0]
    if name == "batch":
        raise UsageError(
            f"line {line.number}: batch cannot run batch; put its lines into this file"
        )
    if name not in COMMANDS and not name.startswith("-") and not line.is_barrier:
        raise UsageError(f"line {line.number}: {unknown_name('command', name, COMMANDS)}")


def _has(name: str, option: str) -> bool:
    """Whether a command has an option; False for what is none, such as --help alone."""
    return name in COMMANDS and option in options_of(command_class(name))


def _with(line: CommandLine, switch: str) -> CommandLine:
    """The line with a switch, if its command has that one."""
    name, *rest = line.words
    if not _has(name, switch.removeprefix("--").replace("-", "_")):
        return line
    return replace(line, words=(name, switch, *rest))  # first: '--' may end the options


def loads_model(line: CommandLine) -> bool:
    """Whether a line needs the libraries of models, whose import takes seconds.

    >>> loads_model(CommandLine(1, ("eval-probe", "stream/00")))
    True
    >>> loads_model(CommandLine(1, ("buffer", "stream/00", "--size", "6")))
    False
    """
    command = COMMANDS.get(line.words[0])
    if command is None or not command.warm:
        return False
    option = command.warm_only_with
    return not option or any(word == option or word.startswith(f"{option}=") for word in line.words)
