"""A manifest says what a directory is; one that cannot be read says why."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.files.manifest import (
    birth_id,
    is_artifact,
    kind_of,
    read_manifest,
    rewritten,
    write_manifest,
)


def _make(directory: Path) -> None:
    directory.mkdir()
    write_manifest(directory, "task", {"seed": 0}, "one", {"name": "one"})


def test_the_directory_that_one_is_in_and_the_uppermost_have_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    assert kind_of(Path()) == "task"
    assert kind_of(Path("/")) is None


def test_a_password_of_the_command_line_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["vlcpctl", "--image-root=s3://KEY:pass/word@data"])
    _make(tmp_path / "a")
    words = read_manifest(tmp_path / "a", "task")["made_by"]["argv"]
    assert words == ["vlcpctl", "--image-root=s3://***@data"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable JSON"),
        ("[]", "not written by vlcpctl"),
        ('{"schema": "vlcpctl.task/2"}', "this version reads vlcpctl.task/1"),
        ('{"schema": "vlcpctl.task/1x"}', "this version reads vlcpctl.task/1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": 1' + "0" * 5000 + "}", "not readable JSON"),
        ('{"schema": "vlcpctl.task/1", "name": "\\ud800"}', "half of a surrogate pair"),
        ('{"schema": ["' + "x" * 500 + '"]}', r"task\.json has schema .{,90}; this version reads"),
        (
            '{"schema": "vlcpctl.task/1", "content": 5, "identity": {}}',
            "'content': expected text",
        ),
        (
            '{"schema": "vlcpctl.task/1", "content": "x", "identity": [1]}',
            "field 'identity': expected an object, got a list",
        ),
    ],
)
def test_a_manifest_that_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(BadInput, match=message) as error:
        read_manifest(tmp_path, "task")
    assert str(tmp_path / "task.json") in str(error.value)


def test_a_minor_version_is_read(tmp_path: Path) -> None:
    _make(tmp_path / "later")
    text = (tmp_path / "later" / "task.json").read_text()
    later = text.replace("vlcpctl.task/1", "vlcpctl.task/1.12").replace("{", '{"new": 1,', 1)
    (tmp_path / "later" / "task.json").write_text(later)
    assert read_manifest(tmp_path / "later", "task")["name"] == "one"


def test_a_pipe_with_the_name_of_a_manifest_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("task.json", "summary.json"):
        os.mkfifo(tmp_path / name)
    assert not is_artifact(tmp_path)
    with pytest.raises(BadInput, match="is not a task"):
        read_manifest(tmp_path, "task")


def test_paths_that_are_not_utf8_can_be_in_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["vlcpctl", os.fsdecode(b"out-\xff\xfe")])
    _make(tmp_path / "out")
    assert read_manifest(tmp_path / "out", "task")["made_by"]["argv"][1] == "out-\\xff\\xfe"


@pytest.mark.parametrize(
    "text", ["{}", "[]", "{", "[" * 100_000, '{"schema": "somebody.report/1"}', "\xff"]
)
def test_a_file_with_the_name_of_a_manifest_makes_no_artifact(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text, encoding="latin-1")
    assert not is_artifact(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"schema": "vlcpctl.report/1"}))
    assert is_artifact(tmp_path)


def test_what_a_manifest_lacks_is_named_with_its_file(tmp_path: Path) -> None:
    _make(tmp_path / "out")
    manifest = pickle.loads(pickle.dumps(read_manifest(tmp_path / "out", "task")))
    assert manifest["name"] == "one"
    assert manifest.get("step") is None
    with pytest.raises(
        BadInput, match=r"task\.json has changed since it was written: it has no 'step'"
    ):
        manifest["step"]


@pytest.mark.parametrize(
    ("entries", "own"),
    [
        ({"content": "c"}, "c"),
        ({"content": "c", "id": "a"}, "a"),
        ({"content": "c", "was": ["a", "b"]}, "a"),  # version 0.3
    ],
)
def test_a_rewritten_artifact_keeps_its_id(entries: dict[str, object], own: str) -> None:
    assert birth_id(entries, "place") == own
    again = rewritten(entries, "d", {"n": 1})
    assert again == {"content": "d", "n": 1, "id": own}
    assert rewritten(again, own, {}) == {"content": own, "n": 1}


def test_an_id_that_is_not_text_is_refused() -> None:
    for entries in ({"id": 3}, {"was": "a"}, {"was": [3]}):
        with pytest.raises(BadInput, match="place: field"):
            birth_id({"content": "c", **entries}, "place")
