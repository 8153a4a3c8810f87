"""`vlcpctl methods --new`: a method that trains, to be changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program import check_refused, run_program

from vlcpctl.testing.tiny_stream import make_stream

HOW = ("--preset", "tiny", "--batch-size", 4, "--steps", 2, "-q")


def test_a_new_method_trains(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "feature-distance.py"
    made = run_program(capfd, "methods", "--new", file)
    assert (made.code, made.out) == (0, f"{file}\n")
    how = f"--method feature-distance --method-file {file}"
    assert made.err.splitlines() == [
        f"train it: vlcpctl train-step TASK -o OUT {how}",
        f"test it: python -m vlcpctl.testing {how}",
    ]
    first, second = sorted(make_stream(tmp_path / "stream", 2, 12).glob("0*"))
    words = ("--method", "feature-distance", "--method-file", file)
    out = tmp_path / "00"
    done = run_program(capfd, "train-step", first, "-o", out, *words, *HOW, "--model", "micro")
    assert done.code == 0, done.err
    words = (*words, "--previous", out)
    done = run_program(capfd, "train-step", second, "-o", tmp_path / "01", *words, *HOW)
    assert done.code == 0, done.err
    assert "feature-distance/distance" in (tmp_path / "01" / "metrics.jsonl").read_text()


def test_what_is_there_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("mine")
    check_refused(
        run_program(capfd, "methods", "--new", file),
        "methods",
        4,
        f"{file} exists; choose another name",
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ctp.py", "ctp is a built-in method; choose another name"),
        ("mine.txt", "write NAME.py"),
        ("a+b.py", "write NAME.py"),
    ],
)
def test_names_that_methods_cannot_have_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    check_refused(run_program(capfd, "methods", "--new", tmp_path / name), "methods", 2, said)
