"""The lines of a batch file for Snakemake, or for Slurm's sbatch, which then start them.

Both run the very lines. A line that is killed is started again and resumes; `--wait` makes it wait
for a first one that still runs, after the engine itself was killed and started again.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vlcpctl.core.errors import UsageError
from vlcpctl.core.printable import printable
from vlcpctl.jobs.dependencies import dependencies
from vlcpctl.jobs.script import CommandLine

ENGINES = ("snakemake", "sbatch")
_RETRIES = 3
_TRAIN = "train-step"  # the one command that several machines run together
_SAVES_S = 120  # before the time limit, at which a job is told to save


def snakefile(
    lines: Sequence[CommandLine],
    name: str,
    takes_wait: Callable[[str], bool],
    writes_file: Callable[[str], bool],
) -> Iterator[str]:
    """The lines of a Snakefile with a rule for each line of the batch file `name`.

    Raises UsageError for what Snakemake cannot run: a job on several machines, or braces in the
    name of an output.
    """
    ordered = dependencies(lines)
    outputs = _Outputs([line for line, _ in ordered], f".{Path(name).name}.done", writes_file)
    shown = printable(name)
    yield f"# {shown} for Snakemake, made by: vlcpctl batch {shown} --to snakemake"
    yield "# Start it where the batch file would be started: snakemake --cores all"
    yield "rule all:"
    yield f"    input: {', '.join(outputs.input(line) for line, _ in ordered)}"
    for line, waits in ordered:
        asks = line.resources
        if asks.nodes > 1:
            raise UsageError(
                f"line {line.number}: nodes={asks.nodes} is for --to sbatch: a rule of Snakemake "
                "runs on one machine"
            )
        yield ""
        yield f"rule line_{line.number}:"
        if waits:
            yield f"    input: {', '.join(outputs.input(one) for one in waits)}"
        yield f"    output: {outputs.output(line)}"
        yield f"    threads: {_cores(line)}"
        known = {
            "gpu": asks.gpus,
            "mem_mb": asks.mem,
            "runtime": asks.time,
            "slurm_partition": asks.partition,
            "slurm_account": asks.account,
        }
        given = [f"{key}={json.dumps(value)}" for key, value in known.items() if value]
        if given:
            yield f"    resources: {', '.join(given)}"
        yield f"    retries: {_RETRIES}"
        shell = _shell(line, takes_wait).replace("{", "{{").replace("}", "}}")
        yield f"    shell: {json.dumps(shell)}"


class _Outputs:
    """What each rule writes: the --out of its line, or else an empty file that Snakemake makes."""

    def __init__(
        self,
        lines: Sequence[CommandLine],
        marks: str,
        writes_file: Callable[[str], bool],
    ) -> None:
        # An output belongs to the last line that writes it; earlier ones, and the shards of one,
        # of which any may be the last to end, have marks.
        self._owners = {
            line.makes: line.number for line in lines if line.makes and not line.is_shard
        }
        self._marks, self._writes_file = marks, writes_file

    def input(self, line: CommandLine) -> str:
        return json.dumps(self._path(line))

    def output(self, line: CommandLine) -> str:
        path = self.input(line)
        if not self._owns(line):
            return f"touch({path})"
        return path if self._writes_file(line.words[0]) else f"directory({path})"

    def _owns(self, line: CommandLine) -> bool:
        return line.writes_path and self._owners.get(str(line.makes)) == line.number

    def _path(self, line: CommandLine) -> str:
        if not self._owns(line):
            return f"{self._marks}/line_{line.number}"
        assert line.makes is not None
        path = os.path.relpath(line.makes)
        path = line.makes if path.startswith("..") else path
        if {"{", "}"} & {*path}:
            raise UsageError(
                f"line {line.number}: Snakemake takes braces in {printable(path)} for wildcards; "
                "choose another --out"
            )
        return path


_HEAD = """#!/usr/bin/env bash
# {name} for Slurm, made by: vlcpctl batch {name} --to sbatch
#
#   bash THIS [SBATCH OPTION...]     submit a job for each line; the options are for all
#
# A job starts when those that it needs have ended well; if one fails, they are cancelled. {saves} s
# before its time limit, or when it is preempted, a line is told to save; it exits with 75, and the
# job returns to the queue and resumes, while others keep waiting for it. Submitted again, finished
# lines end at once.
set -euo pipefail

if [ "${{1:-}}" = --line ]; then # within a job, on its first machine
  shift
  words=("$@")
  if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    words+=(--nodes "$SLURM_JOB_NUM_NODES" --rendezvous "$first:$((20000 + SLURM_JOB_ID % 20000))")
  fi
  code=0
  srun --kill-on-bad-exit=1 vlcpctl "${{words[@]}}" || code=$?
  case $code in
    75 | 143) scontrol requeue "$SLURM_JOB_ID" ;; # saved after SIGTERM, or had not begun
  esac
  exit "$code"
fi

script=$0
[ -f "$script" ] || {{
  echo "write this script to a file: Slurm starts it again as every job" >&2
  exit 2
}}
options=("$@")
logs=$(basename "$script").logs
mkdir -p "$logs"

submit() {{ # NUMBER JOB:JOB... SBATCH-OPTION... -- WORD...: prints the number of the job
  local own=(--job-name="vlcpctl-$1" --output="$logs/line-$1.log")
  [ -z "$2" ] || own+=(--dependency="afterok:$2" --kill-on-invalid-dep=yes)
  shift 2
  while [ "$1" != -- ]; do
    own+=("$1")
    shift
  done
  shift
  local job
  job=$(sbatch --parsable --ntasks-per-node=1 --requeue --open-mode=append --signal=TERM@{saves} \\
    "${{options[@]}}" "${{own[@]}}" "$script" --line "$@") || exit # -e does not reach in here
  echo "${{job%%;*}}" # a cluster's name may follow
}}
"""


def sbatch_script(
    lines: Sequence[CommandLine], name: str, takes_wait: Callable[[str], bool]
) -> Iterator[str]:
    """The lines of a bash script that submits a job for each line of the batch file `name`.

    Raises UsageError for a line on several machines that is no train-step.
    """
    yield from _HEAD.format(name=printable(name), saves=_SAVES_S).splitlines()
    for line, waits in dependencies(lines):
        asks = line.resources
        if asks.nodes > 1 and line.words[0] != _TRAIN:
            raise UsageError(
                f"line {line.number}: nodes={asks.nodes}: only {_TRAIN} runs on several machines"
            )
        known = {
            "nodes": asks.nodes,
            "cpus-per-task": _cores(line),
            "gpus-per-node": asks.gpus,
            "mem": asks.mem and f"{asks.mem}M",
            "time": asks.time,
            "partition": asks.partition,
            "account": asks.account,
        }
        given = [f"--{key}={value}" for key, value in known.items() if value]
        after = ":".join(f"$line_{one.number}" for one in waits)
        words = shlex.join(_words(line, takes_wait))
        yield f'line_{line.number}=$(submit {line.number} "{after}" {" ".join(given)} -- \\'
        yield f"  {words})"
        yield f'echo "job $line_{line.number}: line {line.number}, {line.words[0]}"'


def _shell(line: CommandLine, takes_wait: Callable[[str], bool]) -> str:
    return shlex.join(["vlcpctl", *_words(line, takes_wait)])


def _words(line: CommandLine, takes_wait: Callable[[str], bool]) -> list[str]:
    """The words of a line, with a process per GPU and --wait where they are not given."""
    name, *rest = line.words
    asks = line.resources
    processes = max(asks.gpus, 1) * asks.nodes
    added = ["--wait=inf"] if takes_wait(name) and line.value_of("--wait") is None else []
    if name == _TRAIN and processes > 1 and line.value_of("--nproc") is None:
        added += ["--nproc", str(processes)]
    return [name, *added, *rest]  # first: '--' may end the options


def _cores(line: CommandLine) -> int:
    """The cores of a machine that the line uses: as asked for, or its threads."""
    processes, threads = (line.value_of(option) for option in ("--nproc", "--threads"))
    counts = [int(one) if one and one.isdecimal() else 1 for one in (processes, threads)]
    asks = line.resources
    return asks.cpus or max(counts[0] // asks.nodes, asks.gpus, 1) * counts[1]
