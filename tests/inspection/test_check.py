"""Damage of every kind is found, and the file is named; a path of nothing says what to give.

Edits of manifests and indexes are in `tests/data/tasks/test_integrity.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.files.digests import digests_of, file_sha256
from vlcpctl.files.manifest import seal_of
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.check import check
from vlcpctl.inspection.lineage import describe
from vlcpctl.testing.tiny_stream import make_stream, make_task

TAR, WEIGHTS = "train-000000.tar", "open_clip_model.safetensors"


def problems(path: Path, *, deep: bool = False) -> list[str]:
    return list(check(path, deep=deep))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def offset_of(task: Path, row: int) -> int:
    offset: int = pq.read_table(task / "train.parquet")["offset"][row].as_py()
    return offset


def _shorten(task: Path) -> None:
    (task / TAR).write_bytes((task / TAR).read_bytes()[:-600])


def _recaption(task: Path) -> None:
    (task / TAR).write_bytes((task / TAR).read_bytes().replace(b"a red thing", b"a RED thing", 1))


def _drop_row(task: Path) -> None:
    pq.write_table(pq.read_table(task / "train.parquet").slice(1), task / "train.parquet")


# How a task is damaged, what is said of it, and whether only a deep check can know.
DAMAGES: dict[str, tuple[Callable[[Path], None], str, bool]] = {
    "no tar": (lambda task: (task / TAR).unlink(), f"{TAR}: is missing", False),
    "a short tar": (_shorten, f"{TAR}: has no end mark", False),
    "a bit of a header": (lambda task: flip(task / TAR, offset_of(task, 3) - 500), TAR, False),
    "a bit of an image": (lambda task: flip(task / TAR, offset_of(task, 3) + 100), "image", True),
    "a caption of a tar": (_recaption, "captions in the tar", True),
    "a row of an index": (_drop_row, "images is 7, task.json says 8", False),
}


@pytest.mark.parametrize(("damage", "said", "is_deep"), DAMAGES.values(), ids=DAMAGES)
def test_damage_of_a_task_is_found(
    tmp_path: Path, damage: Callable[[Path], None], said: str, is_deep: bool
) -> None:
    task = make_task(tmp_path / "task")
    assert problems(task, deep=True) == []
    damage(task)
    assert (problems(task) == []) == is_deep
    assert any(said in one for one in problems(task, deep=True))


def test_any_flipped_bit_is_found_by_the_deep_check(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", 2)
    whole = (task / TAR).read_bytes()
    image = range(offset_of(task, 0), offset_of(task, 0) + 512)
    # Padding and the .json member's own fields beside key and captions carry no promise.
    for at in [*range(512), *image][::16]:
        flip(task / TAR, at)
        assert problems(task, deep=True), at
        (task / TAR).write_bytes(whole)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file({"a": np.zeros((3, 4), np.float32), "b": np.ones(5)}, tmp_path / WEIGHTS)
    manifest = CheckpointManifest(identity={}, run="r", method="seqf")
    manifest.write(tmp_path, {WEIGHTS: file_sha256(tmp_path / WEIGHTS)}, digests_of(tmp_path))
    return tmp_path


def test_changed_weights_are_found(checkpoint: Path) -> None:
    assert problems(checkpoint, deep=True) == []
    file = checkpoint / WEIGHTS
    data = file.read_bytes()
    for changed in (data[:4], data[:-1], data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]):
        file.write_bytes(changed)
        for deep in (False, True):
            assert problems(checkpoint, deep=deep)[0].startswith(str(file))
    file.unlink()
    assert problems(checkpoint) == [f"{file} is missing"]


def test_a_digest_that_is_not_that_of_the_content_id_is_found_by_the_deep_check(
    checkpoint: Path,
) -> None:
    flip(checkpoint / WEIGHTS, -3)
    entries = json.loads((checkpoint / "checkpoint.json").read_text())
    entries["digests"] = digests_of(checkpoint, [WEIGHTS])
    sealed = {**entries, "seal": seal_of(entries)}
    (checkpoint / "checkpoint.json").write_text(json.dumps(sealed))
    assert problems(checkpoint) == []
    assert "its sha256 differs" in problems(checkpoint, deep=True)[0]


def test_a_file_that_was_written_wrong_is_named(checkpoint: Path) -> None:
    file = checkpoint / WEIGHTS
    file.write_bytes((1).to_bytes(8, "little") + b"{" + bytes(8))
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


def test_inspect_and_check_say_what_to_give_instead(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "all" / "stream", 2, 3)
    (tmp_path / "empty").mkdir()
    wanted = {
        tmp_path / "nope": "does not exist",
        stream / "00-part-0" / "train.parquet": "--pairs",
        tmp_path / "all": f"give one of: {stream}",
        tmp_path / "empty": "no manifest",
        Output(tmp_path / "a.b").open_partial(): f"again to finish {tmp_path / 'a.b'}",
    }
    for path, word in wanted.items():
        (problem,) = check(path, deep=True)
        assert problem.startswith(f"{path}: ")
        assert word in problem
        with pytest.raises(BadInput) as error:
            describe(path)
        assert str(error.value) == problem
