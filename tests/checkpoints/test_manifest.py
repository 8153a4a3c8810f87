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
HEAD = ["schema", "content", "identity", "run", "method"]
FILES = {"model.safetensors": "ef"}


def written(path: Path, manifest: CheckpointManifest) -> dict[str, Any]:
    manifest.write(path, FILES)
    entries: dict[str, Any] = json.loads((path / "checkpoint.json").read_text())
    return entries


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    found = CheckpointManifest.read(tmp_path)
    assert found == replace(
        TRAINED, content=entries["content"], files=FILES, made_by=entries["made_by"]
    )


def test_the_keys_of_a_trained_checkpoint(tmp_path: Path) -> None:
    assert list(written(tmp_path, TRAINED)) == [
        *HEAD,
        *("seed", "buffer", "stream", "stream_step", "step", "task_steps", "tasks", "task_names"),
        *("pairs", "train_seconds", "parent", "fresh_state", "origins", "files", "made_by"),
    ]
    inverted = written(tmp_path, replace(TRAINED, inverting_seconds=0.5))
    assert list(inverted)[-3:] == ["inverting_seconds", "files", "made_by"]


def test_the_keys_of_an_imported_and_of_an_averaged_checkpoint(tmp_path: Path) -> None:
    facts = [
        *("seed", "buffer", "stream", "step", "tasks", "task_names", "task_steps", "stream_step"),
        *("pairs", "train_seconds"),
    ]
    imported = CheckpointManifest(identity={}, run="r", method="imported", origin={"name": "x.pt"})
    assert list(written(tmp_path, imported)) == [
        *(*HEAD, *facts),
        *("parent", "fresh_state", "origins", "origin", "files", "made_by"),
    ]
    averaged = CheckpointManifest(
        identity={}, run="r", method="interpolate", alpha=0.0, parents=["a", "b"]
    )
    assert list(written(tmp_path, averaged)) == [
        *(*HEAD, "alpha", *facts),
        *("parents", "fresh_state", "origins", "files", "made_by"),
    ]


def test_the_content_id_covers_the_files_and_the_identity(tmp_path: Path) -> None:
    first = written(tmp_path, TRAINED)["content"]
    assert written(tmp_path, replace(TRAINED, train_seconds=9.0))["content"] == first
    assert written(tmp_path, replace(TRAINED, identity={}))["content"] != first


def test_a_key_of_another_version_is_kept(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    (tmp_path / "checkpoint.json").write_text(json.dumps({**entries, "later": [1]}))
    assert CheckpointManifest.read(tmp_path).more == {"later": [1]}


@pytest.mark.parametrize("name", ["content", "identity", "run", "task_steps", "origins"])
def test_a_missing_field_is_named_with_its_file(tmp_path: Path, name: str) -> None:
    entries = written(tmp_path, TRAINED)
    del entries[name]
    (tmp_path / "checkpoint.json").write_text(json.dumps(entries))
    with pytest.raises(BadInput, match=rf"checkpoint\.json has no '{name}': it was changed after"):
        CheckpointManifest.read(tmp_path)


def test_what_only_some_checkpoints_have_may_be_missing(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    for name in ("parent", "files", "made_by"):
        del entries[name]
    (tmp_path / "checkpoint.json").write_text(json.dumps(entries))
    found = CheckpointManifest.read(tmp_path)
    assert (found.parent, found.parents, found.alpha, found.origin) == (None,) * 4


def test_it_is_read_without_torch() -> None:
    program = "import sys, vlcpctl.checkpoints.manifest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
