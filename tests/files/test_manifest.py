"""A manifest says what a directory is; one that cannot be read says why."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import xxhash

from vlcpctl.core.errors import BadInput
from vlcpctl.files.manifest import (
    birth_id,
    is_artifact,
    kind_of,
    read_manifest,
    rewrite_manifest,
    rewritten,
    seal_of,
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


MISTAKES = {
    "no JSON": "{",
    "no object": "[]",
    "a later version": '{"schema": "vlcpctl.task/2"}',
    "no version": '{"schema": "vlcpctl.task/1x"}',
    "another kind": '{"schema": "vlcpctl.stream/1"}',
    "deep": "[" * 100_000,
    "a huge number": '{"schema": 1' + "0" * 5000 + "}",
    "half of a pair": '{"schema": "vlcpctl.task/1", "name": "\\ud800"}',
    "a long schema": '{"schema": ["' + "x" * 500 + '"]}',
    "a number as id": '{"schema": "vlcpctl.task/1", "content": 5, "identity": {}}',
    "no identity": '{"schema": "vlcpctl.task/1", "content": "x"}',
    "no seal": '{"schema": "vlcpctl.task/1", "content": "x", "identity": {}}',
}


@pytest.mark.parametrize("text", MISTAKES.values(), ids=MISTAKES)
def test_a_manifest_that_cannot_be_read_is_one_line_that_names_it(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(BadInput, match=str(tmp_path / "task.json")) as error:
        read_manifest(tmp_path, "task")
    assert len(str(error.value)) < 250 + len(str(tmp_path))


def test_a_change_of_any_field_is_noticed_but_of_who_made_it(tmp_path: Path) -> None:
    _make(tmp_path / "out")
    path = tmp_path / "out" / "task.json"
    text = path.read_text()
    path.write_text(text.replace(f'"{sys.version.split()[0]}"', '"4"'))
    assert read_manifest(tmp_path / "out", "task")["name"] == "one"
    path.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(BadInput, match="seal differs"):
        read_manifest(tmp_path / "out", "task")


SEALED: list[tuple[dict[str, Any], str]] = [
    ({}, "{}"),
    ({"b": {}, "a": [], "seal": "s", "schema": "x", "made_by": {}}, '{"a":[],"b":{}}'),
    ({"b": {"z": (1, 2), "y": {"x": None}}}, '{"b":{"y":{"x":null},"z":[1,2]}}'),
    ({"a": {10: 1, 2: {3: "t"}}}, '{"a":{"10":1,"2":{"3":"t"}}}'),
    ({"a": {'"\udcff': "\udc80"}}, '{"a":{"\\"\\\\xff":"\\\\x80"}}'),
]


@pytest.mark.parametrize(("manifest", "text"), SEALED)
def test_a_seal_is_the_digest_of_the_fields_as_json(manifest: dict[str, Any], text: str) -> None:
    assert seal_of(manifest) == xxhash.xxh3_128_hexdigest(text.encode())


@pytest.mark.parametrize(("kind", "word"), [("task", "split"), ("checkpoint", "import-checkpoint")])
def test_what_is_no_artifact_is_refused_with_what_makes_one(
    tmp_path: Path, kind: str, word: str
) -> None:
    with pytest.raises(BadInput, match=f"vlcpctl {word}"):
        read_manifest(tmp_path, kind)
    _make(tmp_path / "a")
    with pytest.raises(BadInput, match="it is a task"):
        read_manifest(tmp_path / "a", "stream")


def test_a_minor_version_is_read_with_fields_that_are_not_known(tmp_path: Path) -> None:
    _make(tmp_path / "later")
    later = read_manifest(tmp_path / "later", "task")
    rewrite_manifest(tmp_path / "later", "task", {"new": 1, **later, "schema": "vlcpctl.task/1.12"})
    assert read_manifest(tmp_path / "later", "task")["new"] == 1


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": "somebody.report/1"}', "\xff", None])
def test_a_file_with_the_name_of_a_manifest_makes_no_artifact(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text, encoding="latin-1") if text else os.mkfifo(path)
    assert not is_artifact(tmp_path)
    path.unlink()
    path.write_text(json.dumps({"schema": "vlcpctl.report/1"}))
    assert is_artifact(tmp_path)


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
        with pytest.raises(BadInput, match="place: "):
            birth_id({"content": "c", **entries}, "place")
