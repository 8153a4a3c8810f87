"""An artifact is whole or absent, whatever stops the process that writes it."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from vlcpctl.core import artifacts
from vlcpctl.core.artifacts import (
    already_made,
    kind_of,
    new_directory,
    new_file,
    read_manifest,
    write_manifest,
)
from vlcpctl.core.errors import BadInput, OutputExists


def _make(final: Path, content: str = "one", identity: dict[str, object] | None = None) -> None:
    with new_directory(final, "task.json") as directory:
        (directory / "data").write_text(content)
        write_manifest(directory, "task", identity or {"seed": 0}, content, {"name": content})


def _fail_after_writing(path: Path) -> None:
    path.write_text("half")
    raise KeyError


def _killed_at(module: object, name: str, work: Callable[[], None]) -> None:
    """Do the work in a child that is killed where it would call module.name."""
    pid = os.fork()
    if pid == 0:
        setattr(module, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        work()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_replacing_keeps_the_old_one_aside(tmp_path: Path) -> None:
    final = tmp_path / "a b"
    _make(final, "one")
    _make(final, "two")
    assert read_manifest(final, "task")["content"] == "two"
    assert read_manifest(tmp_path / "a b.old", "task")["content"] == "one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b", "a b.old"]


def test_an_error_leaves_nothing_and_the_old_one_intact(tmp_path: Path) -> None:
    final = tmp_path / "a"
    _make(final, "one")
    with pytest.raises(KeyError), new_directory(final, "task.json") as directory:
        _fail_after_writing(directory / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert read_manifest(final, "task")["content"] == "one"


@pytest.mark.parametrize("point", ["_sync_tree", "_ready_name", "move_aside"])
def test_a_kill_leaves_the_old_or_the_new_one(tmp_path: Path, point: str) -> None:
    final = tmp_path / "a"
    _make(final, "one")
    _killed_at(artifacts, point, lambda: _make(final, "two"))
    assert read_manifest(final, "task")["content"] in {"one", "two"}
    _make(final, "three")
    assert read_manifest(final, "task")["content"] == "three"
    assert not [path for path in tmp_path.iterdir() if ".tmp-" in path.name]


def test_a_swap_killed_half_way_is_finished_by_the_next_reader(tmp_path: Path) -> None:
    final = tmp_path / "a"
    _make(final, "one")
    _make(tmp_path / ".a.new", "two")
    final.rename(tmp_path / "a.old")
    assert kind_of(final) == "task"
    assert read_manifest(final, "task")["content"] == "two"


def test_the_same_command_is_recognised_and_another_one_named(tmp_path: Path) -> None:
    final = tmp_path / "a"
    assert not already_made(final, "task", {"seed": 0}, force=False)
    _make(final, identity={"seed": 0, "pair": (1, 2)})
    assert already_made(final, "task", {"seed": 0, "pair": [1, 2]}, force=False)
    with pytest.raises(OutputExists, match="seed is 0 there and 1 here"):
        already_made(final, "task", {"seed": 1, "pair": [1, 2]}, force=False)
    assert not already_made(final, "task", {"seed": 1, "pair": [1, 2]}, force=True)


def test_something_else_at_the_place_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OutputExists, match="is not a task"):
        already_made(tmp_path / "a", "task", {}, force=False)


def test_the_directory_that_one_is_in_and_the_uppermost_have_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    assert kind_of(Path()) == "task"
    assert kind_of(Path("/")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable JSON"),
        ("[]", "not written by vlcpctl"),
        ('{"schema": "vlcpctl.task/2"}', "this version reads vlcpctl.task/1"),
    ],
)
def test_a_manifest_that_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_manifest(tmp_path, "task")


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    final = tmp_path / "rows"
    with pytest.raises(KeyError), new_file(final) as temporary:
        _fail_after_writing(temporary)
    assert list(tmp_path.iterdir()) == []
    with new_file(final) as temporary:
        temporary.write_text("whole")
    assert final.read_text() == "whole"


def test_what_a_manifest_lacks_is_named_with_its_file(tmp_path: Path) -> None:
    _make(tmp_path / "out")
    manifest = pickle.loads(pickle.dumps(read_manifest(tmp_path / "out", "task")))
    assert manifest["name"] == "one"
    assert manifest.get("step") is None
    with pytest.raises(BadInput, match=r"task\.json has no 'step': it was changed after"):
        manifest["step"]
