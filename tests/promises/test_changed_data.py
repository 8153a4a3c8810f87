"""Data that changed after they were written are refused by every command that reads them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.edits import INDEX_EDITS, MANIFEST_EDITS, Edit, column, edit_json, manifest, split
from support.evaluators import EVALUATORS
from support.program import TINY, ProgramResult, check_refused, make_inputs, run_program

from vlcpctl.core.seals import seal_of
from vlcpctl.data.tasks.index import ContentId
from vlcpctl.data.tasks.manifests import TaskSummary
from vlcpctl.testing.tiny_stream import make_task, without_digests

Program = Callable[..., ProgramResult]
EDITS = {**INDEX_EDITS, **MANIFEST_EDITS}


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command line in this process."""
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


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


@pytest.mark.parametrize("of", ["task", "buffer"])
def test_a_row_that_cannot_be_read_is_named(
    program: Program, place: Path, tmp_path: Path, of: str
) -> None:
    task, changed = place / "stream" / "01-part-1", tmp_path / "changed"
    shutil.copytree(task if of == "task" else place / "buffer", changed)
    given = (changed,) if of == "task" else (task, "--buffer", changed)
    without_digests(changed)
    key = pq.read_table(changed / "train.parquet")["key"][0].as_py()
    how = ("-o", tmp_path / "out", *TINY, "--previous", place / "plain")
    for name, value, said in (
        ("offset", -1, "offset is negative"),
        ("size", -1, "size is less than 1"),
        ("shard", "\x1b[31m", "shard"),
        ("shard", ".", "shard"),
        ("captions", [None], "one of its captions is null"),
    ):
        whole = (changed / "train.parquet").read_bytes()
        column(name, value)(changed)
        ended = program("train-step", *given, *how)
        check_refused(ended, "train-step", 3, changed / "train.parquet", key, said)
        assert "\x1b" not in ended.err
        (changed / "train.parquet").write_bytes(whole)


def test_a_task_or_buffer_without_images_is_bad_data(
    program: Program, place: Path, tmp_path: Path
) -> None:
    task = place / "stream" / "01-part-1"
    empty = make_task(tmp_path / "empty", 0)
    buffer = without_digests(shutil.copytree(place / "buffer", tmp_path / "buffer"))
    INDEX_EDITS["no rows"](buffer)
    content = ContentId().hexdigest()
    split(images=0, content=content)(buffer)
    manifest(content=TaskSummary("buffer", {"train": {"content": content}}).content)(buffer)
    edit_json(buffer / "task.json", lambda value: value.update(seal=seal_of(value)))
    how = ("-o", tmp_path / "out", *TINY, "--previous", place / "plain")
    for given in ((empty,), (task, "--buffer", buffer)):
        ended = program("train-step", *given, *how)
        check_refused(ended, "train-step", 3, given[-1], "no images in split 'train'")


def test_tasks_of_earlier_versions_train_as_before(
    program: Program, place: Path, tmp_path: Path
) -> None:
    task, how = place / "stream" / "01-part-1", (*TINY, "--previous", place / "plain")
    old = without_digests(shutil.copytree(task, tmp_path / "old"))
    buffer = without_digests(shutil.copytree(place / "buffer", tmp_path / "buffer"))
    one = program("train-step", task, "--buffer", place / "buffer", *how, "-o", tmp_path / "a")
    two = program("train-step", old, "--buffer", buffer, *how, "-o", tmp_path / "b")
    assert (one.code, two.code, two.err) == (0, 0, one.err)
    a, b = (tmp_path / out / "open_clip_model.safetensors" for out in "ab")
    assert a.read_bytes() == b.read_bytes()
