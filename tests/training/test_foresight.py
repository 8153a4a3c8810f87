"""A dry run refuses what the run would, without torch where no device is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program import ProgramResult, run_program

from vlcpctl.testing.tiny_stream import make_stream


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next(make_stream(tmp_path_factory.mktemp("data") / "stream", 1, 12).glob("0*"))


def train(capfd: pytest.CaptureFixture[str], task: Path, out: Path, *more: object) -> ProgramResult:
    how = ("--method", "seqf", "--preset", "tiny", "--batch-size", 4, "--steps", 1, "-q")
    return run_program(capfd, "train-step", task, "-o", out, *how, *more)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--device", "cudda"), 2, "is not a device; use auto, cpu, cuda or cuda:N"),
        (("--model", "ViT-B-33"), 2, "unknown model 'ViT-B-33'; did you mean 'ViT-B-32'?"),
        (("--pretrained", "no.safetensors"), 5, "no.safetensors"),
    ],
)
def test_a_dry_run_fails_where_the_run_would(
    capfd: pytest.CaptureFixture[str],
    task: Path,
    tmp_path: Path,
    more: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    for words in (more, (*more, "--dry-run")):
        ended = train(capfd, task, tmp_path / "out", *words)
        assert (ended.code, said in ended.err) == (code, True), ended.err
        assert not (tmp_path / "out").exists()
