"""recipes/bench/gpu.sh without a GPU: it says so, and prints commands that exist."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.recipe_lines import RECIPES

SCRIPT = RECIPES / "bench" / "gpu.sh"


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", SCRIPT, "--python", sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_without_a_gpu_it_is_one_line(tmp_path: Path) -> None:
    ended = run("--out", tmp_path / "gpu.txt", CUDA_VISIBLE_DEVICES="")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == "gpu.sh: no GPU: torch finds no CUDA device on this machine\n"
    assert list(tmp_path.iterdir()) == []


def test_every_script_that_it_runs_exists() -> None:
    ended = run("--dry-run", "--model", "ViT-L-14", "--rival", "none")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [shlex.split(line) for line in ended.stdout.splitlines()]
    scripts = [words[1] for words in lines if words[1].endswith(".py")]
    assert {Path(script).name for script in scripts} >= {"gpu_train.py", "step.py", "retrieval.py"}
    assert all(Path(script).is_file() for script in scripts)
    (training,) = (words for words in lines if words[1].endswith("gpu_train.py"))
    assert training[2:] == ["--model", "ViT-L-14", "--batch", "512", "--no-rival"]


@pytest.mark.parametrize("words", [["--nothing"], ["--model"]])
def test_a_wrong_option_is_refused(words: list[str]) -> None:
    assert run(*words).returncode == 2
