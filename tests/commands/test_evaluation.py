"""Commands that evaluate: their options, and rows in a pipe or a device, which come one by one."""

from __future__ import annotations

import os
import stat
from dataclasses import fields
from pathlib import Path

import pytest
from support.evaluators import EVALUATORS

from vlcpctl.commands import command_class
from vlcpctl.commands.evaluation import has_rows, rows_to
from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import options_of
from vlcpctl.evaluation.classification.probe import LinearProbe
from vlcpctl.evaluation.classification.zeroshot import Zeroshot
from vlcpctl.evaluation.evaluator import Evaluator
from vlcpctl.evaluation.retrieval.evaluator import Retrieval
from vlcpctl.evaluation.spatial import Spatial
from vlcpctl.files.finished import already_made
from vlcpctl.files.outputs import new_file
from vlcpctl.files.rows import is_row_file

each_force = pytest.mark.parametrize("force", [False, True])


@each_force
def test_a_pipe_is_written_to_and_stays(tmp_path: Path, *, force: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert not has_rows(pipe, [], force=force)
    with rows_to(pipe) as stream:
        stream.write("one\n")
    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


@each_force
def test_a_device_is_written_to_and_stays(tmp_path: Path, *, force: bool) -> None:
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    assert not has_rows(null, [], force=force)
    with rows_to(null) as stream:
        stream.write("one\n")
    with new_file(null, is_row_file) as path:
        path.write_text("one\n")
    assert null.is_symlink()
    assert list(tmp_path.iterdir()) == [null]


@each_force
def test_a_device_is_no_place_for_a_directory(tmp_path: Path, *, force: bool) -> None:
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    with pytest.raises(UsageError, match="null is stdout, a pipe or a device"):
        already_made(null, "task", {}, force=force)


def test_tests_of_promises_find_the_evaluators() -> None:
    assert {"eval-retrieval", "eval-zeroshot", "eval-probe", "spatial-report"} <= {*EVALUATORS}


# What the commands use themselves, or hand on under another name.
NOT_FIELDS = {
    *("checkpoint", "data_sets", "max_skip", "num_shards", "shard_index"),
    *("dry_run", "json", "log", "quiet", "threads", "wait"),
}


@pytest.mark.parametrize(
    ("command", "evaluator"),
    [
        ("eval-retrieval", Retrieval),
        ("eval-zeroshot", Zeroshot),
        ("eval-probe", LinearProbe),
        ("spatial-report", Spatial),
    ],
)
def test_every_other_option_is_a_field_of_the_evaluator(
    command: str, evaluator: type[Evaluator]
) -> None:
    taken = {one.name for one in fields(evaluator)}
    assert options_of(command_class(command)).keys() - taken <= NOT_FIELDS
