"""Faults and hostile inputs end as they should: the cases of some groups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RECIPES / "faults"), *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("group", ["A half-written", "Variables", "Inputs that", "split runs"])
def test_the_cases_of_a_group_end_well(group: str, tmp_path: Path) -> None:
    ended = run(group, "--world", str(tmp_path / "world"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
