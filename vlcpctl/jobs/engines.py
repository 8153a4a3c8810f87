"""The lines of a batch file for Snakemake, or for Slurm's sbatch, which then start them.

Both run the very lines. A line that is killed is started again and resumes; `--wait` makes it wait
for a first one that still runs, after the engine itself was killed and started again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable
from vlcpctl.files.ids import content_id
from vlcpctl.jobs.script import CommandLine, Glob, shell_text

ENGINES = ("snakemake", "sbatch")
_RETRIES = 3
_TRAIN = "train-step"  # the one command that several machines run together
_SAVES_S = 120  # before the time limit, at which a job is told to save


def dependencies(lines: Sequence[CommandLine]) -> list[tuple[CommandLine, tuple[CommandLine, ...]]]:
    r"""Each line that is not `wait`, with the earlier ones that it waits for, in their order.

    As `batch --jobs` starts them: those that it follows, and all that precede a `wait`.

    >>> from vlcpctl.jobs.script import parse
    >>> lines = parse("split a -o s\ncheck s\nwait\ncheck b")
    >>> [[one.number for one in waits] for _, waits in dependencies(lines)]
    [[], [1], [1, 2]]
    """
    found: list[tuple[CommandLine, tuple[CommandLine, ...]]] = []
    before_wait: list[CommandLine] = []
    since: list[CommandLine] = []
    for line in lines:
        if line.is_barrier:
            before_wait += since
            since = []
            continue
        needed = [one for one in since if line.follows(one)]
        found.append((line, (*before_wait, *needed)))
        since.append(line)
    return found


def snakefile(
    lines: Sequence[CommandLine], name: str, takes_wait: Callable[[str], bool]
) -> Iterator[str]:
    """The lines of a Snakefile with a rule for each line of the batch file `name`.

    What a rule writes is a mark, an empty file: Snakemake removes what it takes for the output of a
    rule before it starts that again, and a checkpoint must not be removed by an engine. The line
    itself knows whether it is finished. Raises UsageError for a job on several machines.
    """
    ordered = dependencies(lines)
    marks = _marks([line for line, _ in ordered], f".{Path(name).name}.done")
    shown = printable(name)
    yield f"# {shown} for Snakemake, made by: vlcpctl batch {shown} --to snakemake"
    yield "# Start it where the batch file would be started: snakemake --cores all"
    yield "rule all:"
    yield f"    input: {', '.join(_literal(marks[line.number]) for line, _ in ordered)}"
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
            yield f"    input: {', '.join(_literal(marks[one.number]) for one in waits)}"
        yield f"    output: touch({_literal(marks[line.number])})"
        yield f"    threads: {_cores(line)}"
        known = {
            "gpu": asks.gpus,
            "mem_mb": asks.mem,
            "runtime": asks.time,
            "slurm_partition": asks.partition,
            "slurm_account": asks.account,
        }
        given = [f"{key}={_literal(value)}" for key, value in known.items() if value]
        if given:
            yield f"    resources: {', '.join(given)}"
        yield f"    retries: {_RETRIES}"
        shell = (
            shell_text(["vlcpctl", *_words(line, takes_wait)]).replace("{", "{{").replace("}", "}}")
        )
        yield f"    shell: {_literal(shell)}"


def _marks(lines: Sequence[CommandLine], directory: str) -> dict[int, str]:
    """The mark of each line, by its number: of its words, so that other lines do not change it."""
    counts: Counter[str] = Counter()
    found = {}
    for line in lines:
        words = content_id(list(line.words))[:16]
        counts[words] += 1
        again = f"-{counts[words]}" if counts[words] > 1 else ""
        found[line.number] = f"{directory}/{line.words[0]}-{words}{again}"
    return found


def _literal(value: object) -> str:
    """A text or number as both JSON and Python write it."""
    return json.dumps(value, ensure_ascii=False)


_HEAD = """#!/usr/bin/env bash
# {name} for Slurm, made by: vlcpctl batch {name} --to sbatch
#
#   bash THIS [SBATCH OPTION...]     submit a job for each line; the options are for all, but
#                                    those that a line asks for by #: come after them
#
# A job starts when those that it needs have ended well; if one fails, they are cancelled. Before
# its time limit ({saves} s, or a quarter of a short one), or when it is preempted, a line is told
# to save. It exits with 75, and the job returns to the queue and resumes, while others keep
# waiting for it. A line that does not save is started {retries} times again. Submitted again,
# finished lines end at once.
set -euo pipefail

if [ "${{1:-}}" = --line ]; then # within a job, on its first machine
  shift
  words=("$@")
  if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    address=$first:$((20000 + SLURM_JOB_ID % 20000))
    words=("$1" --nodes "$SLURM_JOB_NUM_NODES" --rendezvous "$address" "${{@:2}}")
  fi
  code=0
  srun --kill-on-bad-exit=1 vlcpctl "${{words[@]}}" || code=$?
  # 75: saved after SIGTERM. 143: had not begun, or does not save, so that it may never end.
  again=$((${{SLURM_RESTART_COUNT:-0}} < {retries}))
  [ "$1" != train-step ] || again=1
  if [ "$code" = 75 ] || [ "$code$again" = 1431 ]; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
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

submit() {{ # NUMBER JOB:JOB... SIGNAL SBATCH-OPTION... -- WORD...: prints the number of the job
  local own=(--job-name="vlcpctl-$1" --output="$logs/line-$1.log")
  [ -z "$2" ] || own+=(--dependency="afterok:$2" --kill-on-invalid-dep=yes)
  local signal=$3
  shift 3
  while [ "$1" != -- ]; do
    own+=("$1")
    shift
  done
  shift
  local job # and 'exit' below, since -e does not hold within $(...)
  job=$(sbatch --parsable --ntasks-per-node=1 --requeue --open-mode=append \\
    --signal="$signal" "${{options[@]}}" "${{own[@]}}" "$script" --line "$@") || exit
  echo "${{job%%;*}}" # a cluster's name may follow
}}
"""


def sbatch_script(
    lines: Sequence[CommandLine], name: str, takes_wait: Callable[[str], bool]
) -> Iterator[str]:
    """The lines of a bash script that submits a job for each line of the batch file `name`.

    Raises UsageError for a line other than train-step that asks for several machines, and globs.
    """
    yield from _HEAD.format(name=printable(name), saves=_SAVES_S, retries=_RETRIES).splitlines()
    for line, waits in dependencies(lines):
        asks = line.resources
        if asks.nodes > 1 and line.words[0] != _TRAIN:
            raise UsageError(
                f"line {line.number}: nodes={asks.nodes}: only {_TRAIN} runs on several machines"
            )
        if any(isinstance(word, Glob) for word in line.words):
            raise UsageError(
                f"line {line.number}: Slurm's jobs do not expand * and ?; write the paths out"
            )
        saves = min(_SAVES_S, asks.time * 15) if asks.time else _SAVES_S  # a quarter of the minutes
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
        words = shell_text(_words(line, takes_wait))
        start = f'line_{line.number}=$(submit {line.number} "{after}" TERM@{saves}'
        yield f"{start} {' '.join(given)} -- \\"
        yield f"  {words})"
        yield f'echo "job $line_{line.number}: line {line.number}, {line.words[0]}"'


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
