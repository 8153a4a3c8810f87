"""The sweep of docs/guides/sweep.md, run as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vlcpctl.files.rows import read_rows
from vlcpctl.report.report import read_facts

ROOT = Path(__file__).parents[2]


def written_lines() -> str:
    """The shell lines of the page."""
    text = (ROOT / "docs" / "guides" / "sweep.md").read_text(encoding="utf-8")
    return "".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))


def test_a_run_is_named_after_what_differs() -> None:
    """The loop alone, in the shell: eight runs of four settings, of four lines each."""
    loop = re.search(r"^printf .*?^done", written_lines(), flags=re.DOTALL | re.MULTILINE)
    assert loop
    lines = subprocess.run(
        ["bash", "-euc", f"a=a b=b steps=3\n{loop[0]}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(lines) == 8 * 4
    names = {re.findall(r"--run (\S+)", line)[0] for line in lines if "--run" in line}
    assert names == {f"{method}-lr{lr}" for method in ("seqf", "ctp") for lr in ("1e-3", "3e-3")}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_line_runs_as_written(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", written_lines()],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    rows = read_rows(map(str, (tmp_path / "runs").glob("*/*/*.ndjson")))
    assert {row.preset for row in rows} == {"tiny"}
    assert {row.split for row in rows} == {"val", "test"}
    summary = json.loads((tmp_path / "report" / "summary.json").read_text(encoding="utf-8"))
    assert {one["of"]: len(one["settings"]) for one in summary["best"]} == {"ctp": 2, "seqf": 2}
    facts = read_facts((tmp_path / "report" / "facts.csv").read_text(encoding="utf-8"))
    finals = [one for one in facts if one["metric"] == "own_final"]
    assert {one["split"] for one in finals} == {"test"}
    assert {one["run"] for one in finals} == {one["chosen"] for one in summary["best"]}
    assert all(one["seeds"] == [0, 1] for one in finals)
