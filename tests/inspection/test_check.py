"""Damage of every kind is found, and the file is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from support.marks import mostly_slow

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.files.digests import digests_of, file_sha256
from vlcpctl.files.manifest import seal_of
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_stream, make_task


def problems(path: Path, *, deep: bool = False) -> list[str]:
    return list(check(path, deep=deep))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def offset_of(task: Path, row: int) -> int:
    offset: int = pq.read_table(task / "train.parquet")["offset"][row].as_py()
    return offset


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_stream_has_no_problem(tmp_path: Path, deep: bool) -> None:
    assert problems(make_stream(tmp_path / "stream", 2, 5), deep=deep) == []


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    (task / "train-000000.tar").unlink()
    assert problems(task) == [f"{task}/train-000000.tar: is missing"]


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    shard = task / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-600])
    assert f"{shard}: has no end mark; it is truncated or damaged" in problems(task)


def test_a_flipped_bit_of_an_image_is_found_by_the_deep_check(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    flip(task / "train-000000.tar", offset_of(task, 3) + 100)
    assert problems(task) == []
    (found,) = problems(task, deep=True)
    assert "train-000000.tar" in found
    assert "the image" in found


def test_a_flipped_bit_of_a_header_is_found_at_once(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    flip(task / "train-000000.tar", offset_of(task, 3) - 500)
    (found,) = problems(task)
    assert "train-000000.tar" in found


@pytest.mark.parametrize("every", mostly_slow([1, 16], kept=[16]))
def test_any_flipped_bit_is_found_by_the_deep_check(tmp_path: Path, every: int) -> None:
    task = make_task(tmp_path / "task", 2)
    shard = task / "train-000000.tar"
    whole = shard.read_bytes()
    image = range(offset_of(task, 0), offset_of(task, 0) + 512)
    # Padding and the .json member's own fields beside key and captions carry no promise.
    for at in [*range(512), *image][::every]:
        flip(shard, at)
        assert problems(task, deep=True), at
        shard.write_bytes(whole)


def test_a_caption_changed_in_the_tar_is_found(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", 2)
    shard = task / "train-000000.tar"
    shard.write_bytes(shard.read_bytes().replace(b"a red thing", b"a RED thing", 1))
    (found,) = problems(task, deep=True)
    assert "captions in the tar" in found


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    flip(task / "train.parquet", 60)
    assert any("train.parquet" in problem for problem in problems(task))


def test_an_index_with_other_rows_is_found(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    table = pq.read_table(task / "train.parquet")
    pq.write_table(table.slice(1), task / "train.parquet")
    found = problems(task)
    assert any("images is 7, task.json says 8" in problem for problem in found)
    assert any("content is" in problem for problem in found)


def test_a_missing_task_of_a_stream_is_named(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 3)
    (stream / "01-part-1" / "task.json").unlink()
    (found,) = problems(stream)
    assert "01-part-1" in found


def test_a_task_of_another_stream_is_found(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 3)
    (stream / "01-part-1").rename(tmp_path / "gone")
    make_task(stream / "01-part-1", 4)
    assert any("is not the task listed in stream.json" in problem for problem in problems(stream))


def change(task: Path, how: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads((task / "task.json").read_text())
    how(manifest)
    (task / "task.json").write_text(json.dumps(manifest))


def test_a_changed_manifest_is_found(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    change(task, lambda manifest: manifest.update(name="other"))
    wanted = "task.json has changed since it was written: its seal differs"
    assert any(wanted in problem for problem in problems(task))


def test_what_is_no_artifact_is_a_problem(tmp_path: Path) -> None:
    assert "does not exist" in problems(tmp_path / "x")[0]
    assert "no manifest" in problems(tmp_path)[0]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file(
        {"a": np.zeros((3, 4), np.float32), "b": np.ones(5)},
        tmp_path / "open_clip_model.safetensors",
    )
    files = {"open_clip_model.safetensors": file_sha256(tmp_path / "open_clip_model.safetensors")}
    manifest = CheckpointManifest(identity={}, run="r", method="seqf")
    manifest.write(tmp_path, files, digests_of(tmp_path))
    return tmp_path


def test_a_whole_checkpoint_has_no_problem(checkpoint: Path) -> None:
    assert problems(checkpoint, deep=True) == []


@pytest.mark.parametrize("cut", [4, 30, -1])
def test_a_truncated_tensor_file_is_named(checkpoint: Path, cut: int) -> None:
    file = checkpoint / "open_clip_model.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    (found,) = problems(checkpoint)
    assert found.startswith(str(file))


@pytest.mark.parametrize("deep", [False, True])
def test_a_flipped_weight_is_found(checkpoint: Path, *, deep: bool) -> None:
    flip(checkpoint / "open_clip_model.safetensors", -3)
    assert "its xxh3_128 differs" in problems(checkpoint, deep=deep)[0]


def test_a_digest_that_is_not_that_of_the_content_id_is_found_by_the_deep_check(
    checkpoint: Path,
) -> None:
    flip(checkpoint / "open_clip_model.safetensors", -3)
    entries = json.loads((checkpoint / "checkpoint.json").read_text())
    entries["digests"] = digests_of(checkpoint, ["open_clip_model.safetensors"])
    sealed = {**entries, "seal": seal_of(entries)}
    (checkpoint / "checkpoint.json").write_text(json.dumps(sealed))
    assert problems(checkpoint) == []
    assert "its sha256 differs" in problems(checkpoint, deep=True)[0]


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b'{"a": {"data_offsets": [0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_file_that_was_written_wrong_is_named(checkpoint: Path, header: bytes) -> None:
    file = checkpoint / "open_clip_model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    manifest = CheckpointManifest(identity={}, run="r", method="seqf")
    (checkpoint / "checkpoint.json").unlink()
    manifest.write(checkpoint, {}, digests_of(checkpoint))
    (found,) = problems(checkpoint)
    assert found.startswith(f"{file} is not a whole safetensors file")


def test_a_file_that_loading_would_use_is_found(checkpoint: Path) -> None:
    for name in ("method/ewc/fisher.safetensors", "tokenizer.json", "notes.md"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).touch()
    added = "was added after the manifest was written"
    assert problems(checkpoint) == [
        f"{checkpoint}/method/ewc/fisher.safetensors {added}",
        f"{checkpoint}/tokenizer.json {added}",
    ]


def test_a_missing_file_of_a_checkpoint_is_named(checkpoint: Path) -> None:
    (checkpoint / "open_clip_model.safetensors").unlink()
    assert problems(checkpoint) == [f"{checkpoint}/open_clip_model.safetensors is missing"]
