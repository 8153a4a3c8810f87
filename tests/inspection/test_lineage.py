"""From an artifact back to the raw data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkpoints import write_checkpoint_manifest
from support.pair_files import rows, write_parquet
from support.program import run_program

from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.lineage import describe, lines
from vlcpctl.testing.tiny_stream import make_task


def make_chain(directory: Path) -> None:
    """A stream made from pairs, and a checkpoint trained on its two tasks, one after the other."""
    pairs = write_parquet(directory / "pairs.parquet", rows(30))
    make_stream(SplitOptions(sources=[str(pairs)], by="iid", tasks=2), directory / "stream")
    parent, seen = None, []
    for step, task in enumerate(sorted((directory / "stream").glob("0*"))):
        seen = [*seen, read_manifest(task, "task")["content"]]
        checkpoint = directory / "runs" / f"task-{step}"
        checkpoint.mkdir(parents=True)
        content = f"{step}" * 32
        write_checkpoint_manifest(checkpoint, content, step=step, tasks=seen, parent=parent)
        parent = content


def test_paths_are_shown_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_chain(tmp_path)
    (tmp_path / "link").symlink_to("runs")
    monkeypatch.chdir(tmp_path)
    words = {"runs/task-1": "runs/task-0", "link/task-1": "runs/task-0"}
    for given, parent in words.items():
        shown = run_program(capfd, "inspect", given).out
        assert f"checkpoint {given}\n" in shown
        assert f"parent: checkpoint {parent}\n" in shown
        assert "task: task stream/01-part-1\n" in shown
        assert "pairs.parquet" in shown
        assert str(tmp_path) not in shown
    assert f"checkpoint {tmp_path}/runs/task-0\n" in (
        run_program(capfd, "inspect", tmp_path / "runs/task-1").out
    )
    found = json.loads(run_program(capfd, "inspect", "runs/task-1", "--json").out)
    assert found["parents"][0]["path"] == f"{tmp_path}/runs/task-0"


def test_a_stream_shows_its_tasks_with_counts(tmp_path: Path) -> None:
    make_chain(tmp_path)
    table = list(lines(describe(tmp_path / "stream")))
    assert any(line.split()[:1] == ["00-part-0"] and len(line.split()) == 3 for line in table)


def test_a_parent_that_is_not_there_keeps_its_id(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", 2, stream="ab" * 16)
    (parent,) = describe(task)["parents"]
    assert parent == {"role": "stream", "content": "ab" * 16, "note": "not found nearby"}
