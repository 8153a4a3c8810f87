"""A dry run refuses what the run would, without torch where no device is named."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import pytest
from support.program import ProgramResult, run_program

from vlcpctl.models.tags import known_tags
from vlcpctl.testing.tiny_stream import make_stream
from vlcpctl.training import foresight


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
        (("--model", "ViT-B-32", "--pretrained", "laion2b"), 2, "did you mean 'laion2b_e16'?"),
        (("--pretrained", "openai"), 2, "open_clip has no weights for the model tiny"),
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


def test_a_disk_that_is_too_small_is_warned_of(
    capfd: pytest.CaptureFixture[str],
    task: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(foresight.shutil, "disk_usage", lambda _: usage(10**9, 0, 10**9))
    ended = train(capfd, task, tmp_path / "a" / "out", "--model", "ViT-B-32", "--dry-run")
    said = f"the checkpoint and a saved state take at least 2.4 GB, and {tmp_path} has 1.0 GB free"
    assert (ended.code, f"warning: {said}" in ended.err) == (0, True), ended.err
    ended = train(capfd, task, tmp_path / "a" / "out", "--dry-run")
    assert "saved state" not in ended.err


def test_the_tags_are_those_of_open_clip() -> None:
    import open_clip

    models = [*open_clip.list_models(), "none-such", "none-such-quickgelu"]
    assert any(known_tags(one) for one in models)
    for one in models:
        assert known_tags(one) == open_clip.list_pretrained_tags_by_model(one)
