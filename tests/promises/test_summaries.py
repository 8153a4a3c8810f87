"""Commands that take long end with a short summary on stderr, and none with --quiet."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.pair_files import rows, write_parquet
from support.program import run_program

MICRO = ("--method", "seqf", "--preset", "tiny", "--batch-size", "4", "--epochs", "2")


@pytest.fixture(scope="module")
def place(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, a buffer and checkpoints; and a file with a pair that occurs twice."""
    root = shutil.copytree(place, tmp_path_factory.mktemp("inputs"), dirs_exist_ok=True)
    made = [{**row, "group": f"part-{number % 2}"} for number, row in enumerate(rows(20))]
    write_parquet(root / "pairs.parquet", [*made, made[0]])
    return root


LINES = {
    "split": (
        [
            "split",
            "{at}/pairs.parquet",
            "--by",
            "column:group",
            "--holdout",
            "test=2",
            "--max-skip",
            "10%",
        ],
        [r"split: 2 tasks, 20 images with \d+ captions; held out: test 4; 1 duplicate skipped"],
    ),
    "buffer": (
        ["buffer", "{at}/stream/00-part-0", "--policy", "ring", "--size", "4"],
        [r"buffer: 4 of 12 images kept, \d+ kB"],
    ),
    "distill": (
        ["distill", "{at}/stream/01-part-1", "--teacher", "{at}/plain", "--preset", "tiny"],
        [r"distill: 12 pairs in 1 view, \d+ channels, in [\d.]+ s"],
    ),
    "export": (
        ["export", "{at}/stream", "--to", "hf"],
        [r"export: 48 images with 48 captions in 2 splits, \d+ kB"],
    ),
    "train-step": (
        ["train-step", "{at}/stream/01-part-1", *MICRO, "--previous", "{at}/plain"],
        [
            r"trained 6 steps on 24 pairs in [\d.]+ s \(\d+ pairs/s\); final loss \d\.\d{3}",
        ],
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_summary_is_the_last_line_of_stderr(
    name: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words, expected = LINES[name]
    words = [word.format(at=place) for word in words]
    ended = run_program(capfd, *words, "-o", tmp_path / "out")
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'out'}\n"), ended.err
    shown = ended.err.splitlines()[-len(expected) :]
    for line, pattern in zip(shown, expected, strict=True):
        assert re.fullmatch(pattern, line), ended.err
    quiet = run_program(capfd, *words, "-o", tmp_path / "quiet", "--quiet")
    assert (quiet.code, quiet.out) == (0, f"{tmp_path / 'quiet'}\n")
    assert not re.search("|".join(expected), quiet.err)
