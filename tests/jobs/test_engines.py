"""A batch file for Snakemake and for sbatch: the same lines, in an order that the engines keep."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.jobs.engines import sbatch_script, snakefile
from vlcpctl.jobs.resources import NOTHING, Resources
from vlcpctl.jobs.script import parse

A, B = "stream/00-part-0", "stream/01-part-1"
HOW = "--method seqf --preset tiny --batch-size 4 --steps 2 -q"
BATCH = f"""
#: mem=2GB time=30min
train-step {A} -o 'runs/a b/00' {HOW} --model micro
train-step {B} -o runs/01 {HOW} --previous 'runs/a b/00'  #: cpus=2
eval-retrieval {A} {B} --checkpoint 'runs/a b/00' --checkpoint runs/01 -o rows.ndjson -q
check 'runs/a b/00' runs/01
wait
forgetting-report rows.ndjson -o report -q
"""
TEXTS = "invert-texts --checkpoint c --buffer a -o p --num-shards 2"
BUFFER = "buffer s --checkpoint c -o b --num-shards 2"
SHARDS = "eval-retrieval a --checkpoint c -o r --num-shards 2"
# What the script calls, in the place of a cluster: each call is a line of the file LOG.
FAKES = {
    "sbatch": 'printf "%q " sbatch "$@" >>"$LOG"; echo >>"$LOG"; echo "$(wc -l <"$LOG");main"',
    "srun": 'printf "%q " srun "$@" >>"$LOG"; echo >>"$LOG"; exit "${CODE:-0}"',
    "scontrol": 'echo "scontrol $*" >>"$LOG"; echo node1; echo node2',
}


Rules = dict[str, dict[str, str]]
Cluster = Callable[..., tuple[int, str, list[str]]]


def rules_of(text: str) -> Rules:
    """The fields of each rule of the Snakefile of a batch file, by the rule's name."""
    parsed = parse(text, has_resources=True)
    found: Rules = {}
    for line in snakefile(parsed, "b.txt", lambda name: name != "check"):
        if line.startswith("rule "):
            fields = found.setdefault(line.removeprefix("rule ").rstrip(":"), {})
        elif line.startswith("    "):
            name, _, value = line.strip().partition(": ")
            fields[name] = value
    return found


def waits_of(rules: Rules) -> dict[int, list[int]]:
    """The numbers of the lines that each line waits for."""
    numbers = {
        rule["output"].removeprefix("touch(").removesuffix(")"): int(name.removeprefix("line_"))
        for name, rule in rules.items()
        if name != "all"
    }
    assert len(numbers) == len(rules) - 1  # a mark each
    inputs = {number: rules[f"line_{number}"].get("input", "") for number in numbers.values()}
    return {
        number: [numbers[mark] for mark in marks.split(", ") if mark]
        for number, marks in inputs.items()
    }


def test_each_line_is_a_rule_after_those_that_it_needs() -> None:
    rules = rules_of(BATCH)
    assert [*rules] == ["all", *(f"line_{number}" for number in (3, 4, 5, 6, 8))]
    assert waits_of(rules) == {3: [], 4: [3], 5: [3, 4], 6: [3, 4], 8: [3, 4, 5, 6]}
    assert rules["all"]["input"].count(".b.txt.done/") == 5
    assert {one["retries"] for name, one in rules.items() if name != "all"} == {"3"}
    assert rules["line_4"]["threads"] == "2"
    assert rules["line_4"]["resources"] == "mem_mb=2000, runtime=30"
    assert rules["line_3"]["shell"].startswith('"vlcpctl train-step --wait=inf stream/00-part-0 ')
    assert "--wait" not in rules["line_6"]["shell"]


def test_no_output_is_snakemakes_and_other_lines_do_not_change_a_mark() -> None:
    rules = rules_of("buffer a -o b\ncheck b\ncheck b")
    outputs = [rules[f"line_{number}"]["output"] for number in (1, 2, 3)]
    assert all(one.startswith('touch(".b.txt.done/') for one in outputs)
    assert len({*outputs}) == 3  # of the same words, too
    later = rules_of("# a remark\nsplit x -o y\nbuffer a -o b  # why\ncheck b\ncheck b")
    assert [later[f"line_{number}"]["output"] for number in (3, 4, 5)] == outputs


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("buffer s -o b\ncheck b\nbuffer t -o b --force\ncheck b", [[], [1], [1, 2], [1, 3]]),
        ("distill s -o t --num-shards 2\ndistill u -o t --num-shards 2\ncheck t", [[], [], [1, 2]]),
        (
            f"{SHARDS} --shard-index 0\n{SHARDS} --shard-index 1\n{SHARDS}\nreport r -o x",
            [[], [], [1, 2], [1, 2, 3]],
        ),
        (
            f"{TEXTS} --shard-index=0\n{TEXTS} --shard-index 1\n{TEXTS}\ntrain t --pseudo-texts p",
            [[], [], [1, 2], [1, 2, 3]],
        ),
        (
            f"{BUFFER} --shard-index 0\n{BUFFER} --shard-index 1\n{BUFFER}\ntrain t --buffer b",
            [[], [], [1, 2], [1, 2, 3]],
        ),
        ("update w1 --state p\nupdate w2 --state=p\ncheck p\ncheck q", [[], [1], [1, 2], []]),
        ("split p -qo s\ncheck s", [[], [1]]),
        ("eval a -o r\nreport r -o x\neval b -o r --force", [[], [1], [1, 2]]),
        ("train a -o r/0\neval r/0 -o r/0/rows", [[], [1]]),
    ],
)
def test_a_line_waits_for_what_it_reads_and_for_who_reads_what_it_writes(
    text: str, waits: list[list[int]]
) -> None:
    assert [*waits_of(rules_of(text)).values()] == waits


def test_braces_and_characters_of_every_plane_are_the_same_words() -> None:
    assert "{{x}}" in rules_of("check '{x}'")["line_1"]["shell"]
    assert "p_\U0001f600" in rules_of("check p_\U0001f600")["line_1"]["shell"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu=8", "unknown resource 'gpu'; did you mean 'gpus'?"),
        ("mem=64", "#: mem=64 must be a size such as 64GB"),
        ("mem=64GiB", "must be a size such as 64GB"),
        ("time=12", "#: time=12 must be a time such as 90min, 12h or 2d"),
        ("gpus=0", "#: gpus=0 must be a whole number from 1 on"),
        ("nodes=two", "must be a whole number from 1 on"),
        ("partition=a;b", "partition must be a name"),
    ],
)
def test_a_resource_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(f"check a  #: {text}", has_resources=True)
    assert str(refused.value).startswith("line 1: #: ")
    assert said in str(refused.value)


def test_resources_of_a_line_of_its_own_are_for_later_lines() -> None:
    text = "check a\n#: gpus=2 time=2d\ncheck b #: gpus=4\ncheck c # gpus=8\n"
    lines = parse(text, has_resources=True)
    assert [line.resources for line in lines] == [
        NOTHING,
        Resources(gpus=4, time=2880),
        Resources(gpus=2, time=2880),
    ]
    assert {line.resources for line in parse(text.replace("gpus=2", "section one"))} == {NOTHING}


def test_only_training_runs_on_several_machines() -> None:
    lines = parse("check a  #: nodes=2", has_resources=True)
    with pytest.raises(UsageError, match="line 1: nodes=2 is for --to sbatch"):
        rules_of("check a  #: nodes=2")
    with pytest.raises(UsageError, match="line 1: nodes=2: only train-step runs on several"):
        [*sbatch_script(lines, "b.txt", lambda _: False)]


# sbatch


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Run a script among stand-ins for Slurm's commands: exit code, output, and their calls."""
    for name, body in FAKES.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    log = tmp_path / "log"

    def run(text: str, *words: str, **more: str) -> tuple[int, str, list[str]]:
        script = tmp_path / "jobs it.sh"
        lines = sbatch_script(
            parse(text, has_resources=True), "b.txt", lambda name: name != "check"
        )
        script.write_text("\n".join(lines) + "\n")
        log.unlink(missing_ok=True)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", script, *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "LOG": str(log), **more},
            capture_output=True,
            text=True,
            check=False,
        )
        calls = log.read_text().splitlines() if log.exists() else []
        return ended.returncode, ended.stdout + ended.stderr, calls

    return run


def test_each_line_is_a_job_after_those_that_it_needs(
    cluster: Cluster,
) -> None:
    code, shown, calls = cluster(BATCH, "--partition=main")
    assert code == 0, shown
    assert shown.splitlines()[1] == "job 2: line 4, train-step"
    after = [call.partition("--dependency=afterok:")[2].partition(" ")[0] for call in calls]
    assert after == ["", "1", "1:2", "1:2", "1:2:3:4"]
    assert all("--kill-on-invalid-dep=yes" in call for call in calls[1:])
    assert all(" --partition=main " in call for call in calls)
    assert "--cpus-per-task=2 --mem=2000M --time=30 " in calls[1]
    assert "--signal=TERM@120 --partition=main " in calls[1]  # so that an option replaces it
    assert "--signal=TERM@30 " in cluster("check a  #: time=2min")[2][0]
    assert r"--line train-step --wait=inf stream/00-part-0 -o runs/a\ b/00 " in calls[0]


def test_a_job_that_is_not_taken_ends_the_script(cluster: Cluster, tmp_path: Path) -> None:
    cluster(BATCH)
    (tmp_path / "bin/sbatch").write_text(
        "#!/usr/bin/env bash\necho no such partition >&2\nexit 3\n"
    )
    code, shown, _ = cluster(BATCH)
    assert (code, shown) == (3, "no such partition\n")


@pytest.mark.parametrize(
    ("asks", "slurm", "together"),
    [
        ("gpus=8", "1", "--nproc 8"),
        ("gpus=8 nodes=2", "2", "--nproc 16"),
        ("nodes=2", "2", "--nproc 2"),
        ("cpus=4", "1", ""),
    ],
)
def test_a_job_starts_a_process_per_gpu(
    cluster: Cluster, asks: str, slurm: str, together: str
) -> None:
    text = f"train-step {A} -o a  #: {asks}"
    _, _, (call,) = cluster(text)
    words = call.partition(" --line ")[2].split()
    assert " ".join(words).startswith(f"train-step --wait=inf {together}".strip())
    job = {"SLURM_JOB_NUM_NODES": slurm, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    code, shown, calls = cluster(text, "--line", *words, **job)
    assert code == 0, shown
    (run,) = [call for call in calls if call.startswith("srun ")]
    more = ["--nodes", "2", "--rendezvous", "node1:20007"] if slurm == "2" else []
    name, *rest = words
    assert run.split() == ["srun", "--kill-on-bad-exit=1", "vlcpctl", name, *more, *rest]


@pytest.mark.parametrize(
    ("code", "name", "before", "returns"),
    [
        (75, "train-step", 9, True),
        (143, "train-step", 9, True),
        (143, "sample", 2, True),
        (143, "sample", 3, False),
        (0, "check", 0, False),
        (8, "check", 0, False),
    ],
)
def test_a_job_that_saved_returns_to_the_queue(
    cluster: Cluster,
    code: int,
    name: str,
    before: int,
    *,
    returns: bool,
) -> None:
    job = {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(before)}
    ended, _, calls = cluster("check a", "--line", name, "a", CODE=str(code), **job)
    assert ended == code
    assert ("scontrol requeue 7" in calls) == returns
