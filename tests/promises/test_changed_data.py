"""Data that changed after they were written are refused by every command that reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.edits import INDEX_EDITS, MANIFEST_EDITS, Edit, manifest, record_again
from support.evaluators import EVALUATORS
from support.program import TINY, ProgramResult, check_refused, run_program

from vlcpctl.testing.tiny_stream import make_task

Program = Callable[..., ProgramResult]
EDITS = {**INDEX_EDITS, **MANIFEST_EDITS}


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command line in this process."""
    return lambda *words: run_program(capfd, *words)


def named(task: Path, edit: Edit) -> Path:
    """The file that an edit changes, and that the message must name."""
    return task / ("task.json" if edit in MANIFEST_EDITS.values() else "train.parquet")


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("of", ["task", "buffer"])
def test_training_on_an_edited_task_or_buffer_is_refused(
    program: Program, place: Path, tmp_path: Path, of: str, edit: Edit
) -> None:
    task, changed = place / "stream" / "01-part-1", tmp_path / "changed"
    shutil.copytree(task if of == "task" else place / "buffer", changed)
    edit(changed)
    given = (changed,) if of == "task" else (task, "--buffer", changed)
    how = ("-o", tmp_path / "out", *TINY, "--previous", place / "plain")
    check_refused(program("train-step", *given, *how), "train-step", 3, named(changed, edit))
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


READERS = ("buffer", "buffer --previous", "distill", *EVALUATORS, "check")


@pytest.mark.parametrize("command", READERS)
def test_every_reader_refuses_an_edited_index(
    program: Program, place: Path, tmp_path: Path, command: str
) -> None:
    task, changed, out = place / "stream" / "01-part-1", tmp_path / "changed", tmp_path / "out"
    shutil.copytree(place / "buffer" if "--previous" in command else task, changed)
    INDEX_EDITS["captions swapped"](changed)
    model = ("--checkpoint", place / "plain", "--checkpoint", place / "queued")
    words = {
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
    assert "Traceback" not in ended.err


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
