"""`recipes/production.sh --prepare` makes what `update` needs for a first week."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST = (
    "vlcpctl update week1.parquet --state prod --init start --buffer-from pairs.parquet "
    "--guard production/00-pairs --split-column split --keep-columns emoji --epochs 1"
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_first_week_is_accepted(tmp_path: Path) -> None:
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
    assert len(list(tmp_path.glob("week?.parquet"))) == 4
    ran = bash("-euc", FIRST)
    assert ran.returncode == 0, ran.stderr[-3000:]
    state = json.loads((tmp_path / "prod" / "state.json").read_text())
    assert len(state["head"]) == 2  # the start and a week
