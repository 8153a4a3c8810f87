"""The tables of faults and slips have every case, all of them right; `slow`: some are tried."""

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


@pytest.mark.parametrize(
    ("page", "words", "least"), [("faults", (), 1000), ("slips", ("--slips",), 120)]
)
def test_the_table_has_a_row_for_each_case_and_none_is_wrong(
    page: str, words: tuple[str, ...], least: int
) -> None:
    listed = run("--list", *words).stdout.splitlines()
    table = (RECIPES.parent / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    heads = sum(line.startswith("| fault |") for line in rows)
    assert len(listed) == len(set(listed)) > least
    assert len(rows) - heads == len(listed)
    assert f"{len(listed)} of {len(listed)} are right" in table
    assert "WRONG" not in table


@pytest.mark.slow
@pytest.mark.parametrize("group", ["A half-written", "Variables", "Inputs that", "split runs"])
def test_the_cases_of_a_group_end_well(group: str, tmp_path: Path) -> None:
    ended = run(group, "--world", str(tmp_path / "world"))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_slips_are_answered(tmp_path: Path) -> None:
    ended = run("--slips", "--world", str(tmp_path / "world"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
