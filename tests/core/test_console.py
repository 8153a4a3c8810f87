"""Progress in a log: a line every few seconds, also if the total is unknown."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from vlcpctl.core import console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances four seconds whenever it is read."""
    ticks = itertools.count(0, 4)
    monkeypatch.setattr(console.time, "monotonic", lambda: float(next(ticks)))


@pytest.mark.parametrize(("total", "shown"), [(0, "30"), (100, "30/100")])
def test_lines_come_every_few_seconds(
    clock: None, total: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console.set_quiet(False)
    with console.progress("split", total, "pairs", every_s=10.0) as bar:
        for _ in range(9):
            bar.advance(10)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"split: {shown} pairs, ")


def test_the_last_line_shows_the_total(clock: None, capsys: pytest.CaptureFixture[str]) -> None:
    console.set_quiet(False)
    with console.progress("split", 40, "pairs", every_s=10.0) as bar:
        for _ in range(4):
            bar.advance(10)
    assert capsys.readouterr().err.splitlines()[-1].startswith("split: 40/40 pairs")


def test_a_rate_counts_only_what_this_process_did(
    clock: None, capsys: pytest.CaptureFixture[str]
) -> None:
    console.set_quiet(False)
    with console.progress("train", 1000, "steps", every_s=4.0) as bar:
        bar.resume(900)
        bar.advance(8)
        bar.advance(8)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "train: 908/1000 steps, 46 s left, 2.0/s"
    assert second == "train: 916/1000 steps, 42 s left, 2.0/s"


def test_progress_without_any_item_has_no_time_left(
    clock: None, capsys: pytest.CaptureFixture[str]
) -> None:
    console.set_quiet(False)
    with console.progress("split", 1000, "pairs", every_s=4.0) as bar:
        for _ in range(2):
            bar.advance(0)  # a batch of which every pair was skipped
    assert capsys.readouterr().err.splitlines()[-1] == "split: 0/1000 pairs, 0.0/s"


def test_a_child_claims_stdout_again_with_results_in_a_file_and_a_log_in_a_pipe(
    tmp_path: Path,
) -> None:
    code = """
import os
from vlcpctl.core import console
console.claim_stdout()
if os.fork() == 0:
    console.claim_stdout()
    console.emit("of the child")
    os._exit(0)
os.wait()
console.emit("the result")
"""
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=out, stderr=subprocess.PIPE, text=True, check=True
        )
    assert done.stderr == "of the child\n"
    assert (tmp_path / "out").read_text() == "the result\n"
