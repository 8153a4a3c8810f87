"""A batch file for Snakemake and for sbatch: the same lines, in an order that the engines keep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.jobs.engines import sbatch_script, snakefile
from vlcpctl.jobs.resources import NOTHING, Resources, parse_resources
from vlcpctl.jobs.script import parse
from vlcpctl.testing.tiny_stream import make_stream

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
MADE = (
    *("runs/a b/00/open_clip_model.safetensors", "runs/01/open_clip_model.safetensors"),
    *("rows.ndjson", "report/summary.json"),
)
# What the script calls, in the place of a cluster: each call is a line of the file LOG.
FAKES = {
    "sbatch": 'printf "%q " sbatch "$@" >>"$LOG"; echo >>"$LOG"; echo "$(wc -l <"$LOG");main"',
    "srun": 'printf "%q " srun "$@" >>"$LOG"; echo >>"$LOG"; exit "${CODE:-0}"',
    "scontrol": 'echo "scontrol $*" >>"$LOG"; echo node1; echo node2',
}


def rules_of(text: str) -> dict[str, dict[str, str]]:
    """The fields of each rule of the Snakefile of a batch file, by the rule's name."""
    lines = [*snakefile(parse(text), "b.txt", lambda name: name != "check", _writes_file)]
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith("rule "):
            fields = found.setdefault(line.removeprefix("rule ").rstrip(":"), {})
        elif line.startswith("    "):
            name, _, value = line.strip().partition(": ")
            fields[name] = value
    return found


def _writes_file(name: str) -> bool:
    return name == "eval-retrieval"


def test_each_line_is_a_rule_with_what_it_reads_and_writes() -> None:
    rules = rules_of(BATCH)
    assert [*rules] == ["all", *(f"line_{number}" for number in (3, 4, 5, 6, 8))]
    assert "input" not in rules["line_3"]
    assert rules["line_3"]["output"] == 'directory("runs/a b/00")'
    assert rules["line_4"]["input"] == '"runs/a b/00"'
    assert rules["line_5"]["output"] == '"rows.ndjson"'
    assert rules["line_6"]["output"] == 'touch(".b.txt.done/line_6")'
    assert rules["line_8"]["input"].endswith('"rows.ndjson", ".b.txt.done/line_6"')
    assert rules["all"]["input"].endswith('".b.txt.done/line_6", "report"')
    assert {one["retries"] for name, one in rules.items() if name != "all"} == {"3"}
    assert rules["line_4"]["threads"] == "2"
    assert rules["line_4"]["resources"] == "mem_mb=2000, runtime=30"
    assert rules["line_3"]["shell"].startswith('"vlcpctl train-step --wait=inf stream/00-part-0 ')
    assert "--wait" not in rules["line_6"]["shell"]


def test_shards_are_marks_that_readers_wait_for() -> None:
    shard = "distill s --teacher t --num-shards 2 -o targets --shard-index"
    rules = rules_of(f"{shard} 0\n{shard} 1\ntrain-step s -o a --targets targets")
    assert "input" not in rules["line_2"]
    assert rules["line_3"]["input"] == '".b.txt.done/line_1", ".b.txt.done/line_2"'


def test_an_output_belongs_to_the_last_line_that_writes_it() -> None:
    rules = rules_of("buffer s -o b\ncheck b\nbuffer t -o b --force\ncheck b")
    assert [rules[f"line_{number}"].get("input") for number in (2, 3, 4)] == [
        '".b.txt.done/line_1"',
        '".b.txt.done/line_1"',
        '".b.txt.done/line_1", "b"',
    ]


def test_weeks_of_a_state_follow_each_other_and_are_never_outputs() -> None:
    rules = rules_of("update w1 --state prod\nupdate w2 --state=prod\ncheck prod\ncheck other")
    inputs = [rules[f"line_{number}"].get("input", "") for number in (1, 2, 3, 4)]
    assert inputs == [
        "",
        '".b.txt.done/line_1"',
        '".b.txt.done/line_1", ".b.txt.done/line_2"',
        "",
    ]
    assert all("touch(" in rules[f"line_{number}"]["output"] for number in (1, 2, 3, 4))


def test_braces_are_no_wildcards() -> None:
    assert "{{x}}" in rules_of("check '{x}'")["line_1"]["shell"]
    with pytest.raises(UsageError, match=r"line 1: Snakemake takes braces in a\{x\}b for"):
        rules_of("buffer s -o 'a{x}b'")


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
        parse(f"check a  #: {text}")
    assert str(refused.value).startswith("line 1: #: ")
    assert said in str(refused.value)


def test_resources_of_a_line_of_its_own_are_for_later_lines() -> None:
    lines = parse("check a\n#: gpus=2 time=2d\ncheck b #: gpus=4\ncheck c # gpus=8\n")
    assert [line.resources for line in lines] == [
        NOTHING,
        Resources(gpus=4, time=2880),
        Resources(gpus=2, time=2880),
    ]
    assert parse_resources("", NOTHING) is not None


def test_only_training_runs_on_several_machines() -> None:
    lines = parse("check a  #: nodes=2")
    with pytest.raises(UsageError, match="line 1: nodes=2 is for --to sbatch"):
        rules_of("check a  #: nodes=2")
    with pytest.raises(UsageError, match="line 1: nodes=2: only train-step runs on several"):
        [*sbatch_script(lines, "b.txt", lambda _: False)]


# sbatch


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., tuple[int, str, list[str]]]:
    """Run a script among stand-ins for Slurm's commands: exit code, output, and their calls."""
    for name, body in FAKES.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    log = tmp_path / "log"

    def run(text: str, *words: str, **more: str) -> tuple[int, str, list[str]]:
        script = tmp_path / "jobs it.sh"
        lines = sbatch_script(parse(text), "b.txt", lambda name: name != "check")
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
    cluster: Callable[..., tuple[int, str, list[str]]],
) -> None:
    code, shown, calls = cluster(BATCH, "--partition=main")
    assert code == 0, shown
    assert shown.splitlines()[1] == "job 2: line 4, train-step"
    after = [call.partition("--dependency=afterok:")[2].partition(" ")[0] for call in calls]
    assert after == ["", "1", "1:2", "1:2", "1:2:3:4"]
    assert all("--kill-on-invalid-dep=yes" in call for call in calls[1:])
    assert all(" --partition=main " in call for call in calls)
    assert "--cpus-per-task=2 --mem=2000M --time=30 " in calls[1]
    assert r"--line train-step --wait=inf stream/00-part-0 -o runs/a\ b/00 " in calls[0]


def test_a_job_that_is_not_taken_ends_the_script(
    cluster: Callable[..., tuple[int, str, list[str]]], tmp_path: Path
) -> None:
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
    cluster: Callable[..., tuple[int, str, list[str]]], asks: str, slurm: str, together: str
) -> None:
    text = f"train-step {A} -o a  #: {asks}"
    _, _, (call,) = cluster(text)
    words = call.partition(" --line ")[2].split()
    assert " ".join(words).startswith(f"train-step --wait=inf {together}".strip())
    job = {"SLURM_JOB_NUM_NODES": slurm, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    code, shown, calls = cluster(text, "--line", *words, **job)
    assert code == 0, shown
    (run,) = [call for call in calls if call.startswith("srun ")]
    more = " --nodes 2 --rendezvous node1:20007" if slurm == "2" else ""
    assert run.strip() == f"srun --kill-on-bad-exit=1 vlcpctl {' '.join(words)}{more}"


@pytest.mark.parametrize(("code", "returns"), [(75, True), (143, True), (0, False), (8, False)])
def test_a_job_that_saved_returns_to_the_queue(
    cluster: Callable[..., tuple[int, str, list[str]]], code: int, *, returns: bool
) -> None:
    job = {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "7", "CODE": str(code)}
    ended, _, calls = cluster(f"check {A}", "--line", "check", A, **job)
    assert ended == code
    assert ("scontrol requeue 7" in calls) == returns


# The engines themselves


def same_bytes_as_batch(directory: Path, start: Callable[[Path], None]) -> None:
    """The outputs of `batch` and of another engine, which `start` starts in a directory."""
    for name in ("batch", "engine"):
        (directory / name).mkdir()
        make_stream(directory / name / "stream", tasks=2, n=8)
        (directory / name / "b.txt").write_text(BATCH)
    program(directory / "batch", "batch", "b.txt", "-q")
    start(directory / "engine")
    for name in MADE:
        one, other = ((directory / place / name).read_bytes() for place in ("batch", "engine"))
        assert one == other, name


def program(where: Path, *words: str) -> str:
    """What vlcpctl prints in a directory."""
    words = (sys.executable, "-m", "vlcpctl", *words)
    return subprocess.run(words, cwd=where, check=True, capture_output=True, text=True).stdout


def start_engine(where: Path, *words: str) -> str:
    """What an engine prints that finds this environment's vlcpctl."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        words,
        cwd=where,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
        timeout=280,
    )
    return ended.stdout + ended.stderr


@pytest.mark.skipif(shutil.which("snakemake") is None, reason="needs Snakemake")
@pytest.mark.slow
def test_snakemake_makes_the_bytes_of_batch(tmp_path: Path) -> None:
    def start(where: Path) -> None:
        (where / "Snakefile").write_text(program(where, "batch", "b.txt", "--to", "snakemake"))
        start_engine(where, "snakemake", "--cores", "2")
        assert "Nothing to be done" in start_engine(where, "snakemake", "--cores", "2")

    same_bytes_as_batch(tmp_path, start)


def has_slurm() -> bool:
    found = shutil.which("sinfo") and subprocess.run(
        ["sinfo", "--noheader"], check=False, capture_output=True, timeout=30
    )
    return bool(found) and found.returncode == 0


@pytest.mark.skipif(not has_slurm(), reason="needs Slurm's daemons")
@pytest.mark.slow
def test_slurm_makes_the_bytes_of_batch(tmp_path: Path) -> None:
    def start(where: Path) -> None:
        (where / "submit.sh").write_text(program(where, "batch", "b.txt", "--to", "sbatch"))
        # An option of sbatch: a job is submitted when the one before it has ended.
        start_engine(where, "bash", "submit.sh", "--wait")

    same_bytes_as_batch(tmp_path, start)
