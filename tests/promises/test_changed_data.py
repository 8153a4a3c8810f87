"""Data that changed after they were written are refused by every command that reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.edits import INDEX_EDITS, manifest, record_again
from support.evaluators import EVALUATORS
from support.program import TINY, ProgramResult, check_refused, run_program

from vlcpctl.testing.tiny_stream import make_task

Program = Callable[..., ProgramResult]


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command line in this process."""
    return lambda *words: run_program(capfd, *words)


READERS = (
    *("train-step", "train-step --buffer", "buffer", "buffer --previous", "distill"),
    *(*EVALUATORS, "check"),
)


@pytest.mark.parametrize("command", READERS)
def test_every_reader_refuses_an_edited_index(
    program: Program, place: Path, tmp_path: Path, command: str
) -> None:
    task, changed, out = place / "stream" / "01-part-1", tmp_path / "changed", tmp_path / "out"
    of_buffer = command.endswith(("--previous", "--buffer"))
    shutil.copytree(place / "buffer" if of_buffer else task, changed)
    INDEX_EDITS["captions swapped"](changed)
    model = ("--checkpoint", place / "plain", "--checkpoint", place / "queued")
    how = (*TINY, "--previous", place / "plain")
    words = {
        "train-step": (changed, *how),
        "train-step --buffer": (task, "--buffer", changed, *how),
        "buffer": (changed, "--size", 6),
        "buffer --previous": (task, "--size", 6, "--policy", "ring", "--previous", changed),
        "distill": (changed, "--teacher", place / "plain"),
        **dict.fromkeys(EVALUATORS, (changed, "--split", "train", *model)),
        "eval-zeroshot": (changed, "--split", "train", "--classes", "task", *model),
        "eval-probe": (changed, *model),  # it trains on that split
        "check": (changed,),
    }
    writes = () if command == "check" else ("-q", "-o", out)
    ended = program(command.split(maxsplit=1)[0], *words[command], *writes)
    assert ended.code == 3, ended.err
    assert str(changed / "train.parquet") in ended.err + ended.out
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


def test_the_classes_of_a_stream_with_an_edited_task_are_refused(
    program: Program, place: Path, tmp_path: Path
) -> None:
    stream = shutil.copytree(place / "stream", tmp_path / "stream")
    manifest(labels=["class-0"])(stream / "01-part-1")
    given = (stream / "00-part-0", "--checkpoint", place / "plain", "-o", tmp_path / "out", "-q")
    ended = program("eval-zeroshot", *given)
    check_refused(ended, "eval-zeroshot", 3, stream / "01-part-1" / "task.json")


def test_a_task_or_buffer_without_images_is_bad_data(
    program: Program, place: Path, tmp_path: Path
) -> None:
    task = place / "stream" / "01-part-1"
    empty = make_task(tmp_path / "empty", 0)
    buffer = shutil.copytree(place / "buffer", tmp_path / "buffer")
    INDEX_EDITS["no rows"](buffer)
    record_again(buffer)
    how = ("-o", tmp_path / "out", *TINY, "--previous", place / "plain")
    for given in ((empty,), (task, "--buffer", buffer)):
        ended = program("train-step", *given, *how)
        check_refused(ended, "train-step", 3, given[-1], "no images in split 'train'")
