"""Finished checkpoints: open one as the parent, write the next, carry the methods' slots over."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import new_directory
from vlcpctl.core.batch import Weights
from vlcpctl.core.hashing import content_id, file_sha256
from vlcpctl.core.manifest import read_manifest, write_manifest
from vlcpctl.core.staging import link_or_copy
from vlcpctl.core.tensors import write_tensors
from vlcpctl.models import encoders
from vlcpctl.models.encoders import Encoder


@dataclass(frozen=True)
class Parent:
    """A finished checkpoint that a run starts from or distils from."""

    path: Path
    manifest: dict[str, Any]

    @property
    def content(self) -> str:
        """The content id of the checkpoint."""
        return str(self.manifest["content"])

    @property
    def tasks(self) -> list[str]:
        """The content ids of the tasks it was trained on, in order."""
        return list(self.manifest["tasks"])

    def encoder(self) -> Encoder:
        """The model, loaded from disk with each call."""
        return encoders.load(self.path)

    def slot_files(self) -> dict[str, Path]:
        """The files of the methods' slots, keyed `METHOD/SLOT`."""
        root = self.path / "method"
        return {
            str(path.relative_to(root).with_suffix("")): path
            for path in sorted(root.rglob("*.safetensors"))
        }


def open_parent(path: Path) -> Parent:
    """Open a checkpoint directory; raises BadInput if it is not one."""
    return Parent(path, read_manifest(path, "checkpoint"))


def all_tensors(encoder: Encoder) -> Weights:
    """Copies of a model's parameters and buffers, by name."""
    tensors = {**encoder.weights(), **encoder.buffers()}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Record:
    """What is written into a checkpoint besides its tensors: journal, identity, manifest body."""

    journal: Path
    identity: dict[str, Any]
    body: dict[str, Any]
    before_rename: Callable[[], None]


def write_checkpoint(
    out: Path,
    encoder: Encoder,
    slots: Mapping[str, Mapping[str, Weights]],
    record: Record,
    parent: Parent | None,
) -> None:
    """Write the finished checkpoint; it appears with one rename, complete or not at all."""
    with new_directory(out, "checkpoint.json") as directory:
        encoders.save(encoder, directory)
        _write_slots(directory / "method", slots, parent)
        # Hashed before the journal is there: the content id covers the model and the slots only.
        files = hashes(directory)
        shutil.copyfile(record.journal, directory / record.journal.name)
        content = content_id({"files": files, "identity": record.identity})
        body = {**record.body, "files": files}
        write_manifest(directory, "checkpoint", record.identity, content, body)
        record.before_rename()


def _write_slots(
    directory: Path, slots: Mapping[str, Mapping[str, Weights]], parent: Parent | None
) -> None:
    for method, held in slots.items():
        for name, values in held.items():
            write_tensors(directory / method / f"{name}.safetensors", values)
    if parent is not None:
        link_slots(parent, directory, slots)


def link_slots(parent: Parent, directory: Path, leaving_out: Collection[str] = ()) -> None:
    """Carry over the parent's slots as hard links or copies, except those of some methods.

    A method that pauses for a task finds its slots again in a later one.
    """
    for name, path in parent.slot_files().items():
        if name.split("/")[0] not in leaving_out:
            target = directory / f"{name}.safetensors"
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path.resolve(), target)


def hashes(directory: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by relative path."""
    return {
        str(path.relative_to(directory)): file_sha256(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
