"""The guide to many GPUs and the Slurm scripts: the program takes their command lines."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.recipe_lines import RECIPES, options_of

from vlcpctl.commands.train_step import _request
from vlcpctl.jobs.script import CommandLine, parse
from vlcpctl.training.config.execution import check_processes

SLURM = RECIPES / "slurm"
TASKS = ("00-shop", "01-travel")
# What the scripts call, in the place of a cluster: each call is a line of the file LOG.
FAKES = {
    "sbatch": 'echo "sbatch $*" >>"$LOG"; wc -l <"$LOG"',
    "srun": 'echo "srun $*" >>"$LOG"; exit "${CODE:-0}"',
    "scontrol": 'echo "scontrol $*" >>"$LOG"; echo node1; echo node2',
}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A directory with a stream and stand-ins for Slurm's commands."""
    for task in TASKS:
        (tmp_path / "stream" / task).mkdir(parents=True)
    for name, body in FAKES.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    return tmp_path


def bash(cluster: Path, script: str, *words: str, **more: str) -> tuple[int, str, list[str]]:
    """The exit code and output of a script, and the calls of Slurm's commands."""
    log = cluster / "log"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{cluster / 'bin'}:{os.environ['PATH']}", "LOG": str(log)}
    ended = subprocess.run(
        ["bash", str(SLURM / script), *words],
        cwd=cluster,
        env=environment | more,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = log.read_text().splitlines() if log.exists() else []
    return ended.returncode, ended.stdout + ended.stderr, calls


def lines_of_guide() -> list[CommandLine]:
    """The lines of vlcpctl in the guide, also those that torchrun or sbatch starts."""
    text = (RECIPES.parent / "docs" / "guides" / "many_gpus.md").read_text(encoding="utf-8")
    shell = "".join(re.findall(r"```(?:sh|console)\n(.*?)```", text, flags=re.DOTALL))
    shell = shell.replace("\\\n", " ")
    found = []
    for line in shell.splitlines():
        for start in ("-m vlcpctl ", "vlcpctl ", "train.sbatch "):
            if start in line:
                words = line.split(start, 1)[1]
                found += parse(words if "vlcpctl" in start else f"train-step {words}")
                break
    return found


def test_every_line_of_the_guide_is_one_that_the_program_takes() -> None:
    lines = lines_of_guide()
    assert len(lines) == 8
    for line in lines:
        given = {name: value for name, value in options_of(line).items() if value is not None}
        if line.words[0] != "train-step":
            continue  # its options are known, as options_of has found
        request = _request(given)
        if request.nproc > 1:
            check_processes(request)


def test_a_stream_is_a_chain_of_jobs(cluster: Path) -> None:
    how = {"FIRST": "--model micro", "JOB": "--nodes=2 --time=60"}
    words = ("stream", "run", "ctp", "--batch-size", "64", "--local-loss")
    code, shown, calls = bash(cluster, "stream.sh", *words, DRY_RUN="1", **how)
    assert (code, calls) == (0, [])
    lines = parse(shown)
    names = [line.words[0] for line in lines]
    assert names == ["train-step", "train-step", "eval-retrieval", "forgetting-report"]
    first, second, measured, report = (options_of(line) for line in lines)
    assert (first["model"], first["previous"]) == ("micro", None)
    assert (second["model"], second["previous"]) == (None, first["out"])
    assert measured["checkpoint"] == [first["out"], second["out"]]
    assert str(measured["out"]) in report["rows"]

    code, shown, calls = bash(cluster, "stream.sh", *words, **how)
    assert code == 0, shown
    assert len(calls) == len(lines)
    assert "--dependency" not in calls[0]
    for number, call in enumerate(calls[1:], start=1):
        assert f"--dependency=afterok:{number} --kill-on-invalid-dep=yes" in call
        assert "--nodes=2 --time=60" in call
    assert f"train.sbatch stream/{TASKS[1]} -o run/{TASKS[1]} --method ctp" in calls[1]


@pytest.mark.parametrize(
    ("nodes", "more", "together"),
    [
        ("1", {}, "--nproc 1"),
        ("1", {"SLURM_GPUS_ON_NODE": "8"}, "--nproc 8"),
        ("2", {"SLURM_GPUS_ON_NODE": "8"}, "--nproc 16 --nodes 2 --rendezvous node1:20007"),
        ("2", {"PROCESSES": "4"}, "--nproc 8 --nodes 2 --rendezvous node1:20007"),
    ],
)
def test_a_job_starts_a_process_per_gpu(
    cluster: Path, nodes: str, more: dict[str, str], together: str
) -> None:
    slurm = {"SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    words = ("stream/00-shop", "-o", "run/00", "--method", "ctp")
    code, shown, calls = bash(cluster, "train.sbatch", *words, **slurm, **more)
    assert code == 0, shown
    (call,) = [call for call in calls if call.startswith("srun ")]
    assert call == f"srun --kill-on-bad-exit=1 vlcpctl train-step {' '.join(words)} {together}"
    (line,) = parse(call.split("=1 ", 1)[1])
    check_processes(
        _request({name: value for name, value in options_of(line).items() if value is not None})
    )


@pytest.mark.parametrize(("code", "returns"), [(75, True), (143, True), (0, False), (8, False)])
def test_a_job_that_saved_returns_to_the_queue(cluster: Path, code: int, returns: bool) -> None:
    slurm = {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_ID": "7", "CODE": str(code)}
    ended, _, calls = bash(cluster, "train.sbatch", "stream/00-shop", **slurm)
    assert ended == code
    assert ("scontrol requeue 7" in calls) == returns
