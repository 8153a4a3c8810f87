"""The README's section on a model in production, run as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "### A model in production"


def lines_of_section() -> str:
    """The shell lines of the section, but those that make and enter the place to run them in."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split(SECTION, 1)[1].split("\n## ", 1)[0]
    lines = "".join(re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)).splitlines()
    prepare, enter, *rest = lines
    assert prepare.startswith("bash recipes/production.sh --prepare ")
    assert enter == "source .venv/bin/activate && cd runs/production"
    return "\n".join(rest)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_line_runs_as_written(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "START_STEPS": "20", "OMP_NUM_THREADS": "1"}

    def bash(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    prepared = bash(str(ROOT / "recipes" / "production.sh"), "--prepare", "--out", ".")
    assert prepared.returncode == 0, prepared.stderr
    ran = bash("-euc", lines_of_section())
    assert ran.returncode == 0, ran.stderr[-3000:]
    state = json.loads((tmp_path / "prod" / "state.json").read_text())
    assert len(state["weeks"]) == 2  # three, and one is rolled back
    assert (tmp_path / "models" / "3" / "checkpoint.json").is_file()
    assert (tmp_path / "prod" / "receipts" / "0001.json").is_file()
