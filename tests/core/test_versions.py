"""Versions of data: which content ids are of the same data, and how they are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.core.manifest import identity_differences, read_manifest, write_manifest
from vlcpctl.core.resumable_parts import claim, drop_finished
from vlcpctl.core.versions import NO_VERSIONS, Versions, data_was

TWICE = {"content": "a2", "was": ["a0", "a1"]}


def test_all_ids_of_rewritten_data_are_of_the_same_data() -> None:
    versions = Versions.of([TWICE, {"content": "b"}])
    assert {versions.first(one) for one in ("a0", "a1", "a2")} == {"a0"}
    assert versions.among("a2", ["x", "a1"])
    assert not versions.among("b", ["a0"])
    assert versions.missing(["a0", "b", "c"], ["a2", "c"]) == ["b"]


def test_what_refers_to_rewritten_data_records_its_earlier_ids() -> None:
    made = {"content": "model", "data_was": data_was([TWICE, {"content": "b"}])}
    assert made["data_was"] == {"a2": ["a0", "a1"]}
    assert Versions.of([made]).same("a1", "a2")
    assert data_was([made, {"content": "c1", "was": ["c0"]}]).keys() == {"a2", "c1"}
    assert data_was([{"content": "b"}]) == {}


def test_two_sources_of_versions_are_joined() -> None:
    joined = Versions.of([TWICE]) | Versions.of([{"content": "b1", "was": ["b0"]}], ["n"])
    assert joined.same("a2", "a0")
    assert joined.same("b1", "b0")
    assert joined.counts == ("n",)


@pytest.mark.parametrize(
    ("recorded", "wanted", "differ"),
    [
        ({"tasks": ["a0", "b"]}, {"tasks": ["a2", "b"]}, False),
        ({"tasks": ["b", "a0"]}, {"tasks": ["a2", "b"]}, True),
        ({"buffer": "a1"}, {"buffer": "a2"}, False),
        ({"buffer": None}, {"buffer": "a2"}, True),
        ({"size": {"n": 6}}, {"size": {"n": 5}}, False),
        ({"size": {"n": 5}}, {"size": {"n": 6}}, True),
        ({"size": {"m": 6}}, {"size": {"m": 5}}, True),
    ],
)
def test_identities_differ_by_more_than_versions(
    recorded: dict[str, Any], wanted: dict[str, Any], differ: bool
) -> None:
    versions = Versions.of([TWICE], counts=["size.n"])
    assert bool(identity_differences(recorded, wanted, versions)) == differ
    assert identity_differences(recorded, wanted)


def test_counts_of_data_that_was_not_rewritten_are_compared() -> None:
    versions = Versions.of([{"content": "b"}], counts=["n"])
    assert versions == NO_VERSIONS
    assert identity_differences({"n": 6}, {"n": 5}, versions) == ["n was 6 and is now 5"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"was": "a0"}, "field 'was': expected a list, got text"),
        ({"was": [1]}, "field 'was[0]': expected text, got an integer"),
        ({"was": ["a"] * 1001}, "field 'was': expected a list of length <= 1000"),
        ({"data_was": ["a0"]}, "field 'data_was': expected an object, got a list"),
        ({"data_was": {"a": "b"}}, "field 'data_was[...]': expected a list, got text"),
        ({"data_was": {"a": [None]}}, "field 'data_was[...][0]': expected text, got null"),
    ],
)
def test_a_manifest_with_other_values_is_refused(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    write_manifest(tmp_path, "task", {}, "a", fields)
    with pytest.raises(BadInput) as refused:
        read_manifest(tmp_path, "task")
    assert said in str(refused.value)
    assert str(tmp_path / "task.json") in str(refused.value)


def test_work_in_parts_on_data_that_was_rewritten_since_does_not_go_on(tmp_path: Path) -> None:
    out, versions = tmp_path / "out", Versions.of([TWICE])
    partial = claim(out, {"tasks": ["a0"]}, {"threads": 1}, force=False)
    with pytest.raises(OutputExists) as refused:
        claim(out, {"tasks": ["a2"]}, {"threads": 1}, force=False, versions=versions)
    assert str(refused.value) == (
        f"{partial} is an unfinished run on data from which 'vlcpctl forget' has removed pairs "
        "since: tasks was ['a0'] and is now ['a2']; --force replaces it"
    )
    with pytest.raises(OutputExists, match="an unfinished run of a different command"):
        claim(out, {"tasks": ["b"]}, {"threads": 1}, force=False, versions=versions)
    # Once the output is finished, the parts that a kill has left are deleted.
    drop_finished(out, {"tasks": ["a2"]}, versions)
    assert not partial.exists()


def test_a_manifest_without_rewritten_data_is_what_it_was(tmp_path: Path) -> None:
    write_manifest(tmp_path, "task", {"a": 1}, "b", {})
    assert json.loads((tmp_path / "task.json").read_text()).keys() == {
        *("schema", "content", "identity", "made_by")
    }
