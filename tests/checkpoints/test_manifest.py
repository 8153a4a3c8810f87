"""The manifest of a checkpoint: what is written comes back, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.seals import seal_of

TRAINED = CheckpointManifest(
    identity={"run": "ctp", "seed": 1},
    run="ctp",
    method="er",
    seed=1,
    buffer={"policy": "ring", "size": 8},
    stream="ab",
    stream_step=0,
    step=1,
    task_steps=[None, 1],
    tasks=["a", "b"],
    task_names=["one", "two"],
    pairs=32,
    train_seconds=1.5,
    parent="cd",
    origins={"lr": "flag"},
)
LAST = ["files", "digests", "seal", "made_by"]
HEAD = ["schema", "content", "identity", "run", "method"]
FILES = {"model.safetensors": "ef"}
DIGESTS = {"model.safetensors": {"bytes": 2, "xxh3_128": "ab"}}


def written(path: Path, manifest: CheckpointManifest) -> dict[str, Any]:
    manifest.write(path, FILES, DIGESTS)
    entries: dict[str, Any] = json.loads((path / "checkpoint.json").read_text())
    return entries


def edit(path: Path, manifest: CheckpointManifest, **changes: object) -> None:
    """A manifest with other fields and the seal of these: as a program that knows the format."""
    entries = {**written(path, manifest), **changes}
    (path / "checkpoint.json").write_text(json.dumps({**entries, "seal": seal_of(entries)}))


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    found = CheckpointManifest.read(tmp_path)
    assert found == replace(
        TRAINED,
        content=entries["content"],
        files=FILES,
        digests=DIGESTS,
        made_by=entries["made_by"],
    )


def test_the_keys_of_a_trained_checkpoint(tmp_path: Path) -> None:
    assert list(written(tmp_path, TRAINED)) == [
        *HEAD,
        *("seed", "buffer", "stream", "stream_step", "step", "task_steps", "tasks", "task_names"),
        *("pairs", "train_seconds", "parent", "fresh_state", "origins", *LAST),
    ]
    inverted = written(tmp_path, replace(TRAINED, inverting_seconds=0.5))
    assert list(inverted)[-5:] == ["inverting_seconds", *LAST]
    measured = written(tmp_path, replace(TRAINED, peak_memory={"process": 8}))
    assert list(measured)[-5:] == ["peak_memory", *LAST]


def test_the_keys_of_an_imported_and_of_an_averaged_checkpoint(tmp_path: Path) -> None:
    facts = [
        *("seed", "buffer", "stream", "step", "tasks", "task_names", "task_steps", "stream_step"),
        *("pairs", "train_seconds"),
    ]
    imported = CheckpointManifest(identity={}, run="r", method="imported", origin={"name": "x.pt"})
    assert list(written(tmp_path, imported)) == [
        *(*HEAD, *facts),
        *("parent", "fresh_state", "origins", "origin", *LAST),
    ]
    averaged = CheckpointManifest(
        identity={}, run="r", method="interpolate", alpha=0.0, parents=["a", "b"]
    )
    assert list(written(tmp_path, averaged)) == [
        *(*HEAD, "alpha", *facts),
        *("parents", "fresh_state", "origins", *LAST),
    ]


def test_the_content_id_covers_the_files_and_the_identity(tmp_path: Path) -> None:
    first = written(tmp_path, TRAINED)["content"]
    assert written(tmp_path, replace(TRAINED, train_seconds=9.0))["content"] == first
    assert written(tmp_path, replace(TRAINED, identity={}))["content"] != first


def test_a_key_of_another_version_is_kept(tmp_path: Path) -> None:
    edit(tmp_path, TRAINED, later=[1])
    assert CheckpointManifest.read(tmp_path).more == {"later": [1]}


@pytest.mark.parametrize("name", ["content", "identity", "run", "task_steps", "origins"])
def test_a_missing_field_is_named_with_its_file(tmp_path: Path, name: str) -> None:
    entries = written(tmp_path, TRAINED)
    del entries[name]
    (tmp_path / "checkpoint.json").write_text(json.dumps(entries))
    with pytest.raises(
        BadInput, match=rf"checkpoint\.json has changed since it was written: it has no '{name}'"
    ):
        CheckpointManifest.read(tmp_path)


def test_what_only_some_checkpoints_have_may_be_missing(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    for name in ("parent", "files", "digests", "made_by"):
        del entries[name]
    sealed = {**entries, "seal": seal_of(entries)}
    (tmp_path / "checkpoint.json").write_text(json.dumps(sealed))
    found = CheckpointManifest.read(tmp_path)
    assert (found.parent, found.parents, found.alpha, found.origin) == (None,) * 4


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("step", "x", "field 'step' is 'x', not an integer"),
        ("step", [], r"field 'step' is \[\], not an integer"),
        ("step", True, "field 'step' is True, not an integer"),
        ("step", -1, "has a step that is not between 0 and 9999"),
        ("step", 10**9, "has a step that is not between 0 and 9999"),
        ("stream_step", 10**9, "has a step that is not between 0 and 9999"),
        ("task_steps", [None, 10**9], "has a step that is not between 0 and 9999"),
        ("task_steps", [None, "1"], "field 'task_steps' is '1', not an integer"),
        ("task_steps", [1], "does not have one name and one step for each task"),
        ("tasks", [1, 2], "field 'tasks' is 1, not text"),
        ("tasks", {"a": "b"}, "field 'tasks' is .*, not a list"),
        ("task_names", None, "field 'task_names' is None, not a list"),
        ("run", 1, "field 'run' is 1, not text"),
        ("method", None, "field 'method' is None, not text"),
        ("seed", "0", "field 'seed' is '0', not an integer"),
        ("buffer", "ring", "field 'buffer' is 'ring', not an object"),
        ("pairs", -1, "its pairs or seconds are negative"),
        ("train_seconds", "x", "field 'train_seconds' is 'x', not a number"),
        ("train_seconds", float("nan"), "its pairs or seconds are negative"),
        ("parent", 3, "field 'parent' is 3, not text"),
        ("origins", {"lr": 1}, "field 'lr' is 1, not text"),
        ("files", [], r"field 'files' is \[\], not an object"),
        ("digests", "x", "field 'digests' is 'x', not an object"),
        ("identity", {"run": "other"}, "its content id differs"),
        ("files", {}, "its content id differs"),
    ],
)
def test_a_field_of_a_wrong_type_or_out_of_bounds_is_one_line(
    tmp_path: Path, name: str, value: object, said: str
) -> None:
    edit(tmp_path, TRAINED, **{name: value})
    with pytest.raises(BadInput, match=rf"checkpoint\.json.*{said}") as caught:
        CheckpointManifest.read(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run", "other"),
        ("step", 0),
        ("seed", 2),
        ("tasks", ["b", "a"]),
        ("task_names", ["two", "one"]),
        ("method", "seqf"),
        ("parent", None),
        ("digests", {}),
        ("seal", "0" * 32),
        ("seal", None),
        ("seal", [1]),
        ("later", 1),
    ],
)
def test_an_edit_of_any_field_is_noticed(tmp_path: Path, name: str, value: object) -> None:
    entries = {**written(tmp_path, TRAINED), name: value}
    (tmp_path / "checkpoint.json").write_text(json.dumps(entries))
    with pytest.raises(BadInput, match=r"checkpoint\.json has changed since .*: its seal differs"):
        CheckpointManifest.read(tmp_path)


def test_it_is_read_without_torch() -> None:
    program = "import sys, vlcpctl.checkpoints.manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
