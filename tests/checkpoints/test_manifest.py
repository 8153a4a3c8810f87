"""The manifest of a checkpoint: what is written comes back, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import facts_of_encoder
from vlcpctl.core.errors import BadInput
from vlcpctl.files.manifest import seal_of
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.imports import open_clip

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
        schema="vlcpctl.checkpoint/1",
        seal=entries["seal"],
        content=entries["content"],
        id=entries["content"],
        files=FILES,
        digests=DIGESTS,
        made_by=entries["made_by"],
    )


def test_the_content_id_covers_the_files_and_the_identity(tmp_path: Path) -> None:
    first = written(tmp_path, TRAINED)["content"]
    assert written(tmp_path, replace(TRAINED, train_seconds=9.0))["content"] == first
    assert written(tmp_path, replace(TRAINED, identity={}))["content"] != first


def test_every_field_is_written_whatever_made_the_checkpoint(tmp_path: Path) -> None:
    own = [one.name for one in fields(CheckpointManifest) if one.name not in {"id", "ids"}]
    imported = CheckpointManifest(identity={}, run="r", method="imported", origin={"name": "x.pt"})
    for made in (TRAINED, imported):
        entries = written(tmp_path, made)
        assert entries.keys() == set(own)
    assert (entries["alpha"], entries["parent"], entries["step"]) == (None, None, None)
    rewritten = written(tmp_path, replace(TRAINED, ids={"b": "a"}))
    assert rewritten["ids"] == {"b": "a"}


def test_a_field_that_version_0_2_0_left_out_is_null(tmp_path: Path) -> None:
    entries = written(tmp_path, TRAINED)
    for name in ("alpha", "parents", "configs", "start", "origin", "asked", "warnings"):
        del entries[name]
    sealed = {**entries, "seal": seal_of(entries)}
    (tmp_path / "checkpoint.json").write_text(json.dumps(sealed))
    found = CheckpointManifest.read(tmp_path)
    assert (found.parents, found.alpha, found.origin, found.warnings) == (None,) * 4


def test_a_field_of_a_minor_version_is_passed_over(tmp_path: Path) -> None:
    edit(tmp_path, TRAINED, schema="vlcpctl.checkpoint/1.3", later=[1])
    assert CheckpointManifest.read(tmp_path).run == TRAINED.run


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("step", "x", ".step`"),
        ("step", True, ".step`"),
        ("step", -1, ".step`"),
        ("task_steps", [None, 10**9], r".task_steps\[1\]`"),
        ("task_steps", [None, "1"], r".task_steps\[1\]`"),
        ("task_steps", [1], "does not have one name and one step for each task"),
        ("tasks", [1, 2], r".tasks\[0\]`"),
        ("run", 1, ".run`"),
        ("buffer", "ring", ".buffer`"),
        ("pairs", -1, ".pairs`"),
        ("train_seconds", "x", ".train_seconds`"),
        ("origins", {"lr": 1}, r".origins\[...\]`"),
        ("files", [], ".files`"),
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
        ("tasks", ["b", "a"]),
        ("digests", {}),
        ("identity", {"run": "other"}),
        ("files", {}),
        ("content", "0" * 32),
        ("seal", "0" * 32),
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


def test_texts_have_the_length_of_open_clip_if_none_is_configured() -> None:
    encoder = encoders.build("micro", NewModelOptions(seed=0))
    texts = {k: v for k, v in encoder.config["text_cfg"].items() if k != "context_length"}
    bare = replace(encoder, config={**encoder.config, "text_cfg": texts})
    assert facts_of_encoder(encoder, "micro", None)["text_length"] == 12
    usual = open_clip().CLIPTextCfg().context_length
    assert facts_of_encoder(bare, "micro", None)["text_length"] == usual == 77
