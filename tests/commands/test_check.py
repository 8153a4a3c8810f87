"""`vlcpctl check` tells damage from flaws of the data by its words and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.program import run_program

from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    splits = {"train": 70, "test": 12}
    return make_task(tmp_path / "leaky", splits=splits, pair=lambda number: make_pair(number % 75))


def test_warnings_end_with_0_and_with_strict_3(
    leaky: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_program(capfd, "check", leaky)
    assert result.code == 0
    (line,) = result.out.splitlines()
    assert line.startswith(f"warning: {leaky}: images in test that are also training images: 7")
    assert result.err == "no problems found, 1 warning\n"
    strict = run_program(capfd, "check", "--strict", leaky)
    assert (strict.code, strict.out) == (3, result.out)
    assert strict.err == f"vlcpctl check: 1 warning found in {leaky}\n"


def test_json_has_kind_count_and_example(leaky: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (line,) = run_program(capfd, "check", "--json", leaky).out.splitlines()
    warning = json.loads(line)
    assert (warning["path"], warning["kind"], warning["count"]) == (str(leaky), "leak", 7)
    assert warning["example"] in warning["warning"]


def test_a_clean_stream_has_nothing_to_say(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_program(capfd, "check", "--strict", make_stream(tmp_path / "s", 2, 70, test=12))
    assert (result.code, result.out, result.err) == (0, "", "no problems found\n")


def test_every_path_is_checked_whatever_the_one_before(
    leaky: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = []
    for number, text in enumerate(("[" * 100_000, '{"a":' * 50_000, "\x00", "{}", '"\\ud800"')):
        task = make_task(tmp_path / f"task-{number}", 4)
        (task / "task.json").write_text(text)
        damaged.append(task)
    result = run_program(capfd, "check", *damaged, tmp_path / "none", leaky)
    assert result.code == 3
    lines = result.out.splitlines()
    assert len(lines) == 7
    for task, line in zip(damaged, lines, strict=False):
        assert line.startswith(f"{task}/task.json")
    assert result.err.startswith("vlcpctl check: 6 problems and 1 warning found in ")
    assert len(result.err.splitlines()) == 1
