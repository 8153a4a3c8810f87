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
    assert training[2:6] == ["--model", "ViT-L-14", "--batch", "512"]
    assert training[-1] == "--no-rival"


def test_only_some_sections_are_run() -> None:
    ended = run("--dry-run", "--rival", "none", "--only", "Retrieval")
    (line,) = ended.stdout.splitlines()
    assert {"retrieval.py", "cuda"} <= {Path(word).name for word in shlex.split(line)}


@pytest.mark.slow
def test_retrieval_is_measured_without_a_gpu_too() -> None:
    script = SCRIPT.with_name("retrieval.py")
    words = ["--images", "60", "--captions", "2", "--dimensions", "16", "--rounds", "1"]
    ended = subprocess.run(
        [sys.executable, script, *words], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "t2i: 0 of 120 ranks of bare FAISS differ from ours" in ended.stdout


@pytest.mark.parametrize("words", [["--nothing"], ["--model"]])
def test_a_wrong_option_is_refused(words: list[str]) -> None:
    assert run(*words).returncode == 2
