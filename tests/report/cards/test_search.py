"""Checkpoints are found in directories, bounded, and what cannot be read is noted or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.run_checkpoints import write_run, write_step

from vlcpctl.core.errors import BadInput
from vlcpctl.report.cards import search
from vlcpctl.report.cards.search import LEVELS, find_checkpoints


def test_a_checkpoint_and_directories_of_checkpoints_are_found(tmp_path: Path) -> None:
    run = write_run(tmp_path / "seed0" / "ctp")
    assert list(find_checkpoints([tmp_path])[0]) == ["c0", "c1", "c2"]
    assert list(find_checkpoints([run / "01-people"])[0]) == ["c1"]
    found, notes = find_checkpoints([run / "01-people", tmp_path])
    assert found["c1"].path == run / "01-people"
    assert notes == []


def test_hidden_and_deep_directories_are_not_searched(tmp_path: Path) -> None:
    write_step(tmp_path / "a", 0)
    write_step(tmp_path.joinpath(*["b"] * LEVELS), 1)
    write_step(tmp_path.joinpath(*["d"] * (LEVELS + 1)), 2)
    write_step(tmp_path / ".a.vlcpctl" / "replaced" / "a", 3)
    write_step(tmp_path / "a" / "inside", 3)
    assert list(find_checkpoints([tmp_path])[0]) == ["c0", "c1"]


def test_a_damaged_manifest_is_noted_without_the_place_of_the_search(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", (0, 1))
    path = run / "01-people" / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pairs": 7}))
    found, (note,) = find_checkpoints([tmp_path])
    assert list(found) == ["c0"]
    assert "runs/01-people/checkpoint.json has changed since it was written" in note
    assert str(tmp_path) not in note


def test_what_has_no_checkpoints_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match="missing"):
        find_checkpoints([tmp_path / "missing"])
    with pytest.raises(BadInput, match="has no checkpoint in it, searched 4 levels deep; give"):
        find_checkpoints([tmp_path])
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="file"):
        find_checkpoints([tmp_path / "file"])
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.json").write_text("{}")
    with pytest.raises(BadInput, match="task is not a checkpoint, it is a task"):
        find_checkpoints([tmp_path / "task"])
    monkeypatch.setattr(search, "MOST_DIRECTORIES", 2)
    with pytest.raises(BadInput, match="has more than 2 directories; give the directories of"):
        find_checkpoints([write_run(tmp_path / "run")])
