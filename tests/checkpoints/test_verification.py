"""A checkpoint whose files were changed is refused by whatever opens it, and the file is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.program import QUEUE as KEPT
from support.program import check_refused, run_program

from vlcpctl.checkpoints.checkpoint import open_parent, write_checkpoint
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import Diverged, Incompatible
from vlcpctl.files.manifest import seal_of
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions

WEIGHTS = "open_clip_model.safetensors"
QUEUE = "method/ctp/queue.safetensors"

Change = Callable[[Path], object]  # of a file of the checkpoint


@pytest.fixture
def damaged(place: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint with a queue, to damage."""
    return Path(shutil.copytree(place / "queued", tmp_path / "damaged"))


def flip(path: Path) -> None:
    """Change one bit, and set the times of the file back, as an editor in place can."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


COMMANDS = {
    "train --previous": "train-step {task} -o {out} --previous {ckpt} --method ctp {how}",
    "train --teacher": (
        "train-step {task} -o {out} --previous {plain} --teacher {ckpt} --method lwf {how}"
    ),
    "train --model": (
        "train-step {task} -o {out} --from-scratch --method seqf {how} --model {ckpt}"
    ),
    "merge": "merge {plain} {ckpt} -o {out}",
    "merge --base": "merge {plain} -o {out} --rule ties --base {ckpt}",
    "eval-retrieval": "eval-retrieval {task} --checkpoint {ckpt} -o {out}",
    "eval-zeroshot": "eval-zeroshot {task} --checkpoint {ckpt} -o {out}",
    "eval-probe": "eval-probe {task} --checkpoint {ckpt} -o {out}",
    "spatial-report": "spatial-report {task} --checkpoint {plain} --checkpoint {ckpt} -o {out}",
    "distill": "distill {task} --teacher {ckpt} -o {out}",
    "buffer": "buffer {task} -o {out} --policy herding --size 4 --checkpoint {ckpt}",
    "invert-texts": "invert-texts --checkpoint {ckpt} --buffer {buffer} -o {out} --count 2",
    "import-checkpoint": "import-checkpoint {ckpt} -o {out}",
    "export": "export {ckpt} --to hf-model -o {out}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flipped_bit_of_the_weights_is_refused_by_every_command(
    place: Path, damaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    flip(damaged / WEIGHTS)
    places = {
        "task": place / "stream" / "01-part-1",
        "plain": place / "plain",
        "buffer": place / "buffer",
        "ckpt": damaged,
        "out": tmp_path / "out",
        "how": "--preset tiny --batch-size 4 --epochs 1 -q",
    }
    words = COMMANDS[name].format(**places).split()
    if name == "train --previous":
        words += KEPT
    found = run_program(capfd, *words)
    assert found.out == ""
    assert found.code == 5, found.err
    last = found.err.splitlines()[-1]
    assert last.startswith(f"vlcpctl {words[0]}: {damaged / WEIGHTS} has changed since it was")
    assert "Traceback" not in found.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (WEIGHTS, Path.unlink, "is missing"),
        (WEIGHTS, lambda path: os.truncate(path, 1000), "has changed .*: it has 1000"),
        (WEIGHTS, lambda path: save_file(load_file(path), path), None),
        ("open_clip_config.json", lambda path: path.write_text("{}"), "has changed"),
        ("tokenizer.json", lambda path: path.write_text("{}"), "has changed"),
        ("vocab.txt", lambda path: path.write_text("x"), "was added"),
        ("model.safetensors", lambda path: path.write_text("x"), "was added"),
        ("README.md", lambda path: path.write_text("notes of a user"), None),
        ("metrics.jsonl", Path.unlink, None),
    ],
)
def test_whatever_the_model_is_loaded_from_is_verified(
    damaged: Path, file: str, change: Change, said: str | None
) -> None:
    change(damaged / file)
    if said is None:  # the same bytes, or not read
        encoders.load(damaged)
        return
    advice = "remove it" if said == "was added" else "restore it, or make it again"
    with pytest.raises(Incompatible, match=rf"{file} {said}.*; {advice}"):
        encoders.load(damaged)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (QUEUE, flip, "has changed since it was written: its xxh3_128 differs"),
        (QUEUE, Path.unlink, "is missing"),
        ("method/ewc.safetensors", lambda path: path.touch(), "was added"),
        ("method/ctp/new.safetensors", lambda path: path.touch(), "was added"),
    ],
)
def test_slots_are_verified_before_the_training(
    damaged: Path, file: str, change: Change, said: str
) -> None:
    open_parent(damaged)
    change(damaged / file)
    with pytest.raises(Incompatible, match=rf"{file} {said}"):
        open_parent(damaged)


def test_a_file_outside_of_the_checkpoint_is_not_looked_at(damaged: Path) -> None:
    entries = json.loads((damaged / "checkpoint.json").read_text())
    entries["digests"]["../../x"] = {"bytes": 0, "xxh3_128": ""}
    sealed = {**entries, "seal": seal_of(entries)}
    (damaged / "checkpoint.json").write_text(json.dumps(sealed))
    with pytest.raises(Incompatible, match=r"records a file outside of it: '\.\./\.\./x'"):
        encoders.load(damaged)


def test_an_edited_manifest_is_refused_by_the_program(
    place: Path, damaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (damaged / "checkpoint.json").read_text()
    (damaged / "checkpoint.json").write_text(text.replace('"step": 0', '"step": 7'))
    task = place / "stream" / "00-part-0"
    words = ("eval-retrieval", task, "--checkpoint", damaged, "-o", tmp_path / "rows")
    check_refused(run_program(capfd, *words, "-q"), "eval-retrieval", 3, "checkpoint.json", "seal")


def test_slots_of_the_parent_are_carried_over_for_other_methods_only(
    place: Path, tmp_path: Path
) -> None:
    encoder = encoders.build("micro", NewModelOptions(seed=0))
    manifest = CheckpointManifest(identity={}, run="r", method="seqf")
    parent = open_parent(place / "queued")
    for method, kept in (("ctp", []), ("queue", ["ctp/queue"])):
        out, slots = tmp_path / method, {method: {"own": {"w": torch.ones(1)}}}
        write_checkpoint(out, encoder, manifest, slots=slots, parent=parent)
        assert sorted(open_parent(out).slot_files()) == sorted([*kept, f"{method}/own"])


def test_everything_in_a_checkpoint_is_recorded(place: Path) -> None:
    for name in ("plain", "queued"):
        found = CheckpointManifest.read(place / name)
        there = {
            path.relative_to(place / name).as_posix()
            for path in (place / name).rglob("*")
            if path.is_file()
        }
        assert set(found.digests) == there - {"checkpoint.json"}
        assert set(found.files) == set(found.digests) - {"metrics.jsonl"}


def test_weights_that_are_not_finite_are_not_published(tmp_path: Path) -> None:
    encoder = encoders.build("micro", NewModelOptions(seed=0))
    manifest = CheckpointManifest(identity={}, run="r", method="seqf")
    write_checkpoint(tmp_path / "whole", encoder, manifest)
    slots = {"ema": {"slow": {"w": torch.tensor([1.0, float("inf")])}}}
    with pytest.raises(Diverged, match="the weights diverged: ema/slow: w contains NaN"):
        write_checkpoint(tmp_path / "slot", encoder, replace(manifest, run="s"), slots=slots)
    encoder.weights()["visual.proj"].data[0, 0] = float("nan")
    with pytest.raises(Diverged, match=r"the weights diverged: visual\.proj contains NaN"):
        write_checkpoint(tmp_path / "weight", encoder, manifest)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
