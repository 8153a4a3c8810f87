"""Finished checkpoints: open one as the parent, write the next, carry the methods' slots over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import read_manifest, write_manifest
from vlcpctl.core.atomic import new_directory
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.hashing import content_id, file_sha256
from vlcpctl.core.method import Method, Weights
from vlcpctl.core.tensors import read_tensors, require_same_names, write_tensors
from vlcpctl.engine.method_run import MethodRun
from vlcpctl.engine.run import Slots, TrainRun
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


def carried_slots(
    parent: Parent | None, methods: tuple[Method, ...], *, fresh_state: bool
) -> Slots:
    """The `stream` slots of these methods stored in the parent; {} with `fresh_state`.

    Raises Incompatible if one is missing in a parent that was trained on tasks: starting it at
    zero would silently drop the method's knowledge of them.
    """
    if parent is None or fresh_state:
        return {}
    files, carried = parent.slot_files(), Slots()
    for method in methods:
        carried[method.name] = {}
        for slot in method.slots(first=False):
            if slot.lifetime != "stream":
                continue
            path = files.get(f"{method.name}/{slot.name}")
            if path is not None:
                carried[method.name][slot.name] = read_tensors(path)
            elif parent.tasks:
                raise Incompatible(
                    f"{parent.path} has no state {slot.name!r} of method {method.name} "
                    f"(it was trained with {parent.manifest['method']!r}); "
                    "--fresh-state starts without it"
                )
    return carried


def check_slots(run: TrainRun, carried: Slots, path: Path | None) -> None:
    """Raise Incompatible if a carried slot has other names or shapes than a new one would."""
    for method in run.methods:
        view, handed = MethodRun(run, method.name), carried.get(method.name, {})
        for slot in method.slots(first=view.first):
            if slot.name in handed:
                what = f"{path}: state {method.name}/{slot.name}"
                require_same_names(handed[slot.name], slot.start(view), what)


@dataclass(frozen=True)
class Record:
    """What is written into a checkpoint besides its tensors: journal, identity, manifest body."""

    journal: Path
    identity: dict[str, Any]
    body: dict[str, Any]
    before_rename: Callable[[], None]


def write_checkpoint(out: Path, run: TrainRun, record: Record, parent: Parent | None) -> None:
    """Write the finished checkpoint; it appears with one rename, complete or not at all."""
    with new_directory(out, "checkpoint.json") as directory:
        encoders.save(run.encoder, directory)
        _write_slots(directory / "method", run, parent)
        # Hashed before the journal is there: the content id covers the model and the slots only.
        files = hashes(directory)
        shutil.copyfile(record.journal, directory / record.journal.name)
        content = content_id({"files": files, "identity": record.identity})
        body = {**record.body, "files": files}
        write_manifest(directory, "checkpoint", record.identity, content, body)
        record.before_rename()


def _write_slots(directory: Path, run: TrainRun, parent: Parent | None) -> None:
    running = {method.name for method in run.methods}
    for method in run.methods:
        for slot in method.slots(first=run.first):
            if slot.lifetime == "stream":
                write_tensors(
                    directory / method.name / f"{slot.name}.safetensors",
                    run.slots[method.name][slot.name],
                )
    if parent is not None:
        link_slots(parent, directory, running)


def link_slots(parent: Parent, directory: Path, leaving_out: Collection[str] = ()) -> None:
    """Carry over the parent's slots as hard links or copies, except those of some methods.

    A method that pauses for a task finds its slots again in a later one.
    """
    for name, path in parent.slot_files().items():
        if name.split("/")[0] not in leaving_out:
            target = directory / f"{name}.safetensors"
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(path, target)


def hashes(directory: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by relative path."""
    return {
        str(path.relative_to(directory)): file_sha256(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without hard links
        shutil.copyfile(source, target)
