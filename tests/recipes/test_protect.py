"""recipes/protect_the_start.sh: its lines, and what its table makes of rows."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.recipe_lines import (
    RECIPES,
    dry_run_of,
    options_of,
    options_of_command,
    paths_read,
    script,
    train_request,
)

from vlcpctl.jobs.script import CommandLine

table = script("protect_table")
weeks = script("production_weeks")

CLAIMS = RECIPES.parent / "docs" / "results" / "claims_protect.toml"


def test_every_line_is_one_that_the_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "0")
    lines = dry_run_of("protect_the_start.sh")
    for line in lines:
        assert options_of(line), line
    for given in options_of_command(lines, "train-step"):
        train_request(given)


def test_what_a_line_reads_is_written_by_a_line_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "0")
    made: list[str | None] = [os.path.realpath(f"week{n}.parquet") for n in range(1, 7)]
    for line in dry_run_of("protect_the_start.sh"):
        for path in paths_read(line) if line.words[0] != "sample" else []:
            assert CommandLine(0, (path,)).reads(made), f"{line} reads {path} too early"
        assert line.makes is not None
        assert line.makes not in made
        made.append(line.makes)


def test_a_row_that_merges_needs_the_row_that_it_merges() -> None:
    words = ["bash", str(RECIPES / "protect_the_start.sh"), "--dry-run", "--methods", "ties"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ties needs seqf" in done.stderr


def test_six_weeks_have_the_pictures_of_four() -> None:
    four = sorted(subject for week in weeks.WEEKS for subject in week)
    assert sorted(subject for week in weeks.SIX_WEEKS for subject in week) == four
    glyphs = weeks.read_glyphs()
    sizes = [sum(glyph.subgroup in week for glyph in glyphs) for week in weeks.SIX_WEEKS]
    assert sizes == [81, 80, 82, 80, 84, 79]


def test_the_rows_of_the_claims_are_rows_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "0")
    words = [line.words for line in dry_run_of("protect_the_start.sh")]
    runs = {one[one.index("--run") + 1] for one in words if "--run" in one}
    claims = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claims"]
    assert {claim[side] for claim in claims for side in ("better", "than")} <= runs


def write_rows(path: Path, run: str, scores: dict[str, float]) -> None:
    """Rows as an evaluation writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [
        {"run": run, "task": task, "gallery": "own", "metrics": {"rm": score}}
        for task, score in scores.items()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_the_table_has_guard_weeks_and_old_index(tmp_path: Path) -> None:
    write_rows(tmp_path / "start.ndjson", "start", {"00-pairs": 70, "00-week1": 4, "01-week2": 6})
    write_rows(tmp_path / "start-index.ndjson", "start", {"00-pairs": 70})
    for seed, guard in ((0, 60.0), (1, 50.0)):
        at = tmp_path / f"seed{seed}"
        trained = {"00-pairs": guard, "00-week1": 20.0, "01-week2": 10.0}
        write_rows(at / "er" / "05-week6.ndjson", "er", trained)
        write_rows(at / "er" / "05-week6-index.ndjson", "er", {"00-pairs": 40})
        write_rows(at / "ties.ndjson", "ties", trained | {"00-pairs": guard + 10})
        write_rows(at / "ties-index.ndjson", "ties", {"00-pairs": 45})
    cells = table.measured(tmp_path)
    assert cells["er", 0] == {"rm": 37.5, "guard": 60.0, "weeks": 15.0, "index": 40}
    lines = list(table.table(cells))
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| `start`", "| `ties`", "| `er`"]
    assert lines[4] == "| `er` | 35.0 (3.5) | 37.5, 32.5 | 55.0 (7.1) | 15.0 (0.0) | 40.0 (0.0) |"
    table.write_cells(tmp_path / "cells.tsv", cells)
    written = (tmp_path / "cells.tsv").read_text().splitlines()
    assert written[1] == "start\t-1\t37.5000\t70.0000\t5.0000\t70.0000"
    assert table.read_cells(tmp_path / "cells.tsv") == cells
